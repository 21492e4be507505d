package telemetry

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
)

const (
	hashKeyBytes = 32
	// shownHashBytes is how much of a hash is shown: enough that two identifiers in one log do not look alike.
	shownHashBytes = 8
	// maxShownBytes bounds an identifier that is shown as it is.
	maxShownBytes = 256
)

// Identifiers says how values that identify clients are shown in logs: as a keyed hash, by which one client's lines can be
// found but nobody's value can, or as they are. Immutable, safe for concurrent use.
type Identifiers struct {
	key   []byte
	plain bool
}

// HashedIdentifiers shows hashes with key, so that processes with one key show the same hash. An empty key is replaced by a
// random one.
func HashedIdentifiers(key []byte) *Identifiers {
	if len(key) == 0 {
		key = make([]byte, hashKeyBytes)
		rand.Read(key)
	}
	return &Identifiers{key: append([]byte(nil), key...)}
}

// PlainIdentifiers shows values as they are, cut off after 256 bytes.
func PlainIdentifiers() *Identifiers { return &Identifiers{plain: true} }

// Show returns what may be shown of an identifier: "hash:" and 16 hexadecimal digits of HMAC-SHA-256, or the value itself,
// with what is not UTF-8 replaced. Line breaks and control characters are the log handler's to quote.
func (i *Identifiers) Show(identifier string) string {
	if i.plain {
		if len(identifier) > maxShownBytes {
			identifier = identifier[:maxShownBytes] + "..."
		}
		return strings.ToValidUTF8(identifier, "\uFFFD")
	}
	mac := hmac.New(sha256.New, i.key)
	mac.Write([]byte(identifier))
	return "hash:" + hex.EncodeToString(mac.Sum(nil)[:shownHashBytes])
}

// Attr returns a log attribute that is computed only if its line is logged.
func (i *Identifiers) Attr(name, identifier string) slog.Attr {
	return slog.Any(name, shown{i, identifier})
}

type shown struct {
	identifiers *Identifiers
	identifier  string
}

// LogValue implements slog.LogValuer.
func (s shown) LogValue() slog.Value { return slog.StringValue(s.identifiers.Show(s.identifier)) }
