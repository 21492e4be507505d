package redisstore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	markSize = 16 // bytes of what a charge's hits are recognised by
	idHash   = 16 // bytes of an ID's hash in its key
)

// base is the part of a key that all limits of one descriptor share: what stands before the last ':'.
func base(key string) string {
	if i := strings.LastIndexByte(key, ':'); i >= 0 {
		return key[:i]
	}
	return key
}

// appendTagged appends key as it is written in a Cluster, where the part in braces decides the slot: {BASE}:WINDOW. A base
// with a brace in it, or an empty one, would decide otherwise; a hash of it is put in front instead. (Bases that the engine
// makes have no braces.)
func appendTagged(dst []byte, key string) []byte {
	b := base(key)
	dst = append(dst, '{')
	if b == "" || strings.ContainsAny(b, "{}") {
		hash := sha256.Sum256([]byte(b))
		dst = append(dst, '%')
		dst = hex.AppendEncode(dst, hash[:8])
		dst = append(dst, '}')
		return append(dst, key...)
	}
	dst = append(dst, b...)
	dst = append(dst, '}')
	return append(dst, key[len(b):]...)
}

// tag is the part in braces, with them, of a key that appendTagged wrote.
func tag(tagged string) string { return tagged[:strings.IndexByte(tagged, '}')+1] }

// appendIDKey appends the key under which a charge's ID is remembered: SPACE:id:HASH.
func appendIDKey(dst []byte, space, id string) []byte {
	hash := sha256.Sum256([]byte(id))
	dst = append(dst, space...)
	dst = append(dst, ":id:"...)
	return hex.AppendEncode(dst, hash[:idHash])
}

// idSpace is what the keys of IDs begin with on a server that is no Cluster: the first part of the hits' keys, which is the
// same for all keys of one deployment, so that an ID used again for any other hits is noticed.
func idSpace(key string) string {
	space, _, _ := strings.Cut(key, ":")
	return space
}

// appendMark appends what tells a charge's hits from others: a hash of the keys, and of what is asked for.
func appendMark(dst []byte, hits []ratelimit.Hit) []byte {
	hash := sha256.New()
	var number [17]byte
	for i := range hits {
		binary.LittleEndian.PutUint64(number[:8], uint64(len(hits[i].Key)))
		binary.LittleEndian.PutUint64(number[8:16], uint64(hits[i].Cost))
		number[16] = 0
		if hits[i].Partial {
			number[16] = 1
		}
		hash.Write(number[:])
		hash.Write([]byte(hits[i].Key))
	}
	var sum [sha256.Size]byte
	return append(dst, hash.Sum(sum[:0])[:markSize]...)
}

// sameBase reports whether the keys of all hits have their base in common.
func sameBase(hits []ratelimit.Hit) bool {
	first := base(hits[0].Key)
	for i := 1; i < len(hits); i++ {
		if key := hits[i].Key; !strings.HasPrefix(key, first) || base(key) != first {
			return false
		}
	}
	return true
}
