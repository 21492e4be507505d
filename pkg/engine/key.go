package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
	"unsafe"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// How a counter's key is written:
//
//	PREFIX:DOMAIN:k=v|k=v:WINDOW     in general
//	PREFIX:SCOPE:IDENTIFIER:WINDOW   for the default domain and a single entry
//
// Different descriptors never share a key. Literal bytes are escaped as %XX, the separators : = | { } and % itself among
// them, so a percent sign that is not followed by two hexadecimal digits is a mark that no literal can contain:
//
//	%~HASH   a literal of more than maxLiteral bytes: 128 bits of its SHA-256
//	%*TEXT   a shared level: the rule's pattern stands for all values that it matches
//	%#HASH   a whole path that would make the key longer than maxBase
//	%-       a descriptor without entries
//
// The short form's identifier holds no '=' and the general form's path does, unless it is %- or %#, which no identifier is.
const (
	maxLiteral = 128  // bytes of a domain, key, value or pattern that are written out
	maxBase    = 1000 // bytes of a key before its window
	hashBytes  = 16
)

// literal tells which bytes are written as they are.
var literal = func() (safe [256]bool) {
	for c := '!'; c <= '~'; c++ {
		safe[c] = true
	}
	for _, c := range "%:=|{}" {
		safe[c] = false
	}
	return safe
}()

// appendBase appends a key without its window. shared is the matched rule's levels, or nil.
func (l *Limiter) appendBase(dst []byte, domain string, entries []ratelimit.Entry, levels []ratelimit.EntryMatch) []byte {
	start := len(dst)
	dst = append(dst, l.prefix...)
	if len(entries) == 1 && domain == l.options.DefaultDomain {
		dst = appendLiteral(dst, entries[0].Key)
		dst = append(dst, ':')
		return appendValue(dst, entries, levels, 0)
	}
	dst = appendLiteral(dst, domain)
	dst = append(dst, ':')
	path := len(dst)
	if len(entries) == 0 {
		dst = append(dst, "%-"...)
	}
	for i := range entries {
		if i > 0 {
			dst = append(dst, '|')
		}
		dst = appendLiteral(dst, entries[i].Key)
		dst = append(dst, '=')
		dst = appendValue(dst, entries, levels, i)
	}
	if len(dst)-start > maxBase {
		hash := sha256.Sum256(dst[path:])
		dst = hex.AppendEncode(append(dst[:path], "%#"...), hash[:hashBytes])
	}
	return dst
}

func appendValue(dst []byte, entries []ratelimit.Entry, levels []ratelimit.EntryMatch, i int) []byte {
	if i < len(levels) && levels[i].Shared {
		return appendLiteral(append(dst, "%*"...), levels[i].Pattern)
	}
	return appendLiteral(dst, entries[i].Value)
}

// appendLiteral appends s escaped, or its hash if it is long.
func appendLiteral(dst []byte, s string) []byte {
	if len(s) > maxLiteral {
		hash := sha256.Sum256(unsafe.Slice(unsafe.StringData(s), len(s)))
		return hex.AppendEncode(append(dst, "%~"...), hash[:hashBytes])
	}
	return appendEscaped(dst, s)
}

func appendEscaped(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	first := 0
	for i := range len(s) {
		if c := s[i]; !literal[c] {
			dst = append(dst, s[first:i]...)
			dst = append(dst, '%', digits[c>>4], digits[c&15])
			first = i + 1
		}
	}
	return append(dst, s[first:]...)
}

// appendPrefix appends the setting that begins all keys, and its colon. Colons inside it may stay: it is the same for all.
func appendPrefix(dst []byte, prefix string) []byte {
	if len(prefix) > maxLiteral {
		return append(appendLiteral(dst, prefix), ':')
	}
	for i := range len(prefix) {
		if prefix[i] == ':' {
			dst = append(dst, ':')
			continue
		}
		dst = appendEscaped(dst, prefix[i:i+1])
	}
	return append(dst, ':')
}

// appendWindow appends the last part of limits[i]'s key: its window's name, and "/2", "/3" from the second limit with the same
// window on. No window's name contains a slash.
func appendWindow(dst []byte, limits []ratelimit.Limit, i int) []byte {
	dst = append(dst, ':')
	limit := &limits[i]
	switch { // as Limit.WindowName does, without its string
	case limit.Calendar != ratelimit.CalendarNone:
		dst = append(dst, limit.WindowName()...)
	case limit.Window%time.Second == 0:
		dst = strconv.AppendInt(dst, int64(limit.Window/time.Second), 10)
	default:
		dst = strconv.AppendFloat(dst, limit.Window.Seconds(), 'f', -1, 64)
	}
	same := 1
	for j := range i {
		if limits[j].Window == limit.Window && limits[j].Calendar == limit.Calendar {
			same++
		}
	}
	if same > 1 {
		dst = append(dst, '/')
		dst = strconv.AppendInt(dst, int64(same), 10)
	}
	return dst
}

// appendOverrideWindow appends the last part of an override's key. Where the rule has a limit of the same algorithm over the
// same window, both count in one counter: the override replaces that limit's number. Any other override has a counter of its
// own, because algorithms cannot read each other's state: taking turns, two of them would begin anew each time.
func appendOverrideWindow(dst []byte, override []ratelimit.Limit, rule *ratelimit.Rule) []byte {
	if rule != nil {
		for i := range rule.Limits {
			limit := &rule.Limits[i]
			if limit.Algorithm == override[0].Algorithm && limit.Window == override[0].Window && limit.Calendar == override[0].Calendar {
				return appendWindow(dst, rule.Limits, i)
			}
		}
	}
	dst = appendWindow(dst, override, 0)
	dst = append(dst, '/')
	return append(dst, override[0].Algorithm.String()...)
}
