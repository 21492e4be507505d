package stats

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// defaultName stands for the levels of a domain's default, which has none.
const defaultName = "default"

// showsValues reports whether the names of a rule hold values of requests.
func showsValues(rule *ratelimit.Rule) bool {
	if len(rule.Match) == 0 {
		return false
	}
	if rule.DetailedMetric {
		return true
	}
	for i := range rule.Match {
		level := &rule.Match[i]
		if strings.Contains(level.Key, "*") || level.ValueToMetric && !level.Shared && level.Kind != ratelimit.MatchExact {
			return true
		}
	}
	return false
}

// appendRuleName appends the name that a rule has by itself: the domain, and each level's key and value or pattern.
func appendRuleName(to []byte, rule *ratelimit.Rule) []byte {
	if rule.Domain == "" { // what applies to every domain while there are no rules
		return appendBounded(to, rule.Label())
	}
	to = appendBounded(to, rule.Domain)
	if len(rule.Match) == 0 {
		return appendLevel(to, defaultName, "")
	}
	for i := range rule.Match {
		to = appendLevel(to, rule.Match[i].Key, rule.Match[i].Pattern)
	}
	return to
}

// appendName appends the name that a rule has for the entries that it matches.
func appendName(to []byte, rule *ratelimit.Rule, entries []ratelimit.Entry) []byte {
	to = appendBounded(to, rule.Domain)
	shared := rule.DetailedMetric && sharesAny(rule)
	for i := range entries {
		entry := &entries[i]
		if i >= len(rule.Match) {
			break
		}
		level := &rule.Match[i]
		switch {
		case level.Shared:
			to = appendLevel(to, entry.Key, level.Pattern)
		case rule.DetailedMetric && !shared:
			// Here, and only here, the reference writes the mark before an empty value too.
			to = appendBounded(to, ".")
			to = appendBounded(to, entry.Key)
			to = appendBounded(to, "_")
			to = appendBounded(to, entry.Value)
		case rule.DetailedMetric, level.ValueToMetric, level.Kind == ratelimit.MatchExact:
			to = appendLevel(to, entry.Key, entry.Value)
		case level.Pattern == "" && level.Key != entry.Key:
			to = appendLevel(to, entry.Key, level.Key) // a pattern of keys stands for the value
		default:
			to = appendLevel(to, entry.Key, level.Pattern)
		}
	}
	return to
}

// sharesAny tells whether values of a level are counted together.
func sharesAny(rule *ratelimit.Rule) bool {
	for i := range rule.Match {
		if rule.Match[i].Shared {
			return true
		}
	}
	return false
}

// appendEntries appends the name of a limit that the caller sent.
func appendEntries(to []byte, entries []ratelimit.Entry) []byte {
	for i := range entries {
		to = appendLevel(to, entries[i].Key, entries[i].Value)
	}
	return to
}

// appendLevel appends one level: ".KEY_VALUE", or ".KEY" without a value.
func appendLevel(to []byte, key, value string) []byte {
	to = appendBounded(to, ".")
	to = appendBounded(to, key)
	if value != "" {
		to = appendBounded(to, "_")
		to = appendBounded(to, value)
	}
	return to
}

// appendBounded appends as much of text as a name may have.
func appendBounded(to []byte, text string) []byte {
	if room := maxName - len(to); len(text) > room {
		text = text[:max(room, 0)]
	}
	return append(to, text...)
}

// address finds what may be an IPv4 address, as the reference does: numbers of up to three digits.
var address = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// sanitised replaces what would end a name in a line of statsd: colons, bars, and (here the reference lets pass what lets a
// client write lines of its own) whatever does not print. The dots of an IPv4 address are no separators of a name's parts.
func sanitised(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == ':' || r == '|' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, name)
	return address.ReplaceAllStringFunc(name, func(found string) string {
		return strings.ReplaceAll(found, ".", "_")
	})
}
