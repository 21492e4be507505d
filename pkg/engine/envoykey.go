package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// maxEnvoyKey is how long a key of envoyproxy/ratelimit may be, in bytes, before its window. It never shortens one; a longer
// one, which no gateway sends by itself, is cut and hashed here, so that a client cannot fill Redis with keys of any size.
const maxEnvoyKey = 16 << 10

// appendEnvoyKey appends a counter's key as envoyproxy/ratelimit writes it, without the start of the window, which the store
// adds: PREFIX DOMAIN _ KEY _ VALUE _ KEY _ VALUE _. Nothing is escaped there: descriptors whose parts hold underscores may
// share a key, as they do among its replicas.
func (l *Limiter) appendEnvoyKey(dst []byte, domain string, entries []ratelimit.Entry, levels []ratelimit.EntryMatch) []byte {
	start := len(dst)
	dst = append(dst, l.options.EnvoyPrefix...)
	dst = append(dst, domain...)
	dst = append(dst, '_')
	for i := range entries {
		dst = append(dst, entries[i].Key...)
		dst = append(dst, '_')
		if i < len(levels) && levels[i].Shared {
			dst = append(dst, levels[i].Pattern...)
		} else {
			dst = append(dst, entries[i].Value...)
		}
		dst = append(dst, '_')
	}
	if len(dst)-start > maxEnvoyKey {
		hash := sha256.Sum256(dst[start:])
		dst = append(hex.AppendEncode(append(dst[:start+maxEnvoyKey/2], "_%#"...), hash[:hashBytes]), '_')
	}
	return dst
}

// countsLikeEnvoy reports whether envoyproxy/ratelimit could count an override of this form.
func countsLikeEnvoy(limit *ratelimit.Limit) bool {
	return limit.Algorithm == ratelimit.FixedWindow && limit.Calendar == ratelimit.CalendarNone && limit.Window%time.Second == 0
}
