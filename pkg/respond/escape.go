package respond

import (
	"strings"
	"unicode/utf8"
)

const (
	// MaxName bounds a name as it is written, after escaping.
	MaxName = 128
	// MaxPartition bounds a partition key before encoding.
	MaxPartition = 64
	// DefaultName stands for a limit that has no name.
	DefaultName = "default"

	upperHex = "0123456789ABCDEF"
)

// plain reports whether a byte may stand in a quoted string of a header as it is: visible ASCII and space, but not what
// would need an escape there.
func plain(c byte) bool { return c >= ' ' && c <= '~' && c != '"' && c != '\\' }

// AppendName appends a name in the form in which every header shows it: '"', '\' and all bytes outside visible ASCII and
// space are percent-encoded, and what is longer than MaxName is cut. An empty name becomes DefaultName. The result needs
// no further escape in a quoted string, neither by RFC 9110 nor by RFC 9651, nor where Envoy writes it out as it is.
func AppendName(dst []byte, name string) []byte {
	if name == "" {
		return append(dst, DefaultName...)
	}
	for end, i := len(dst)+MaxName, 0; i < len(name); i++ {
		if c := name[i]; plain(c) {
			if len(dst)+1 > end {
				break
			}
			dst = append(dst, c)
		} else {
			if len(dst)+3 > end {
				break
			}
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&0xf])
		}
	}
	return dst
}

// EscapeName returns name as AppendName writes it. It does not allocate for a name that needs no change.
func EscapeName(name string) string {
	if name == "" {
		return DefaultName
	}
	if len(name) <= MaxName && isPlain(name) {
		return name
	}
	return string(AppendName(make([]byte, 0, MaxName), name))
}

func isPlain(s string) bool {
	for i := range len(s) {
		if !plain(s[i]) {
			return false
		}
	}
	return true
}

// escapeURI percent-encodes what may not stand in a URI reference (RFC 3986, section 2). It returns an empty string for one
// that is too long.
func escapeURI(uri string) string {
	if len(uri) > maxInstance {
		return ""
	}
	escaped := make([]byte, 0, len(uri))
	for i := range len(uri) {
		if c := uri[i]; plain(c) && strings.IndexByte(" <>^`{|}", c) < 0 {
			escaped = append(escaped, c)
		} else {
			escaped = append(escaped, '%', upperHex[c>>4], upperHex[c&0xf])
		}
	}
	return string(escaped)
}

// validUTF8 cuts text to size bytes at a character's border and replaces what is no UTF-8.
func validUTF8(text string, size int) string {
	if len(text) > size {
		for size > 0 && !utf8.RuneStart(text[size]) {
			size--
		}
		text = text[:size]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// isToken reports whether s is a token of RFC 9110, which is what a field name must be.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
