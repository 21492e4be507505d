package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Listing returns the rules as text, a line for each limit, sorted, in the form in which envoyproxy/ratelimit prints them:
//
//	DOMAIN.KEY_VALUE.KEY: unit=MINUTE requests_per_unit=10, shadow_mode: false, quota_mode: false
//
// A rule without limits has the unit UNKNOWN, and what it does instead at the line's end.
func (t *Table) Listing() []string {
	lines := make([]string, 0, len(t.rules))
	for _, rule := range t.rules {
		key := fullKey(rule)
		if len(rule.Limits) == 0 {
			lines = append(lines, listed(key, "UNKNOWN", 0, rule)+doing(rule))
			continue
		}
		for i := range rule.Limits {
			lines = append(lines, listed(key, unitOf(&rule.Limits[i]), rule.Limits[i].Count, rule)+algorithmOf(&rule.Limits[i]))
		}
	}
	slices.Sort(lines)
	return lines
}

func listed(key, unit string, count int64, rule *ratelimit.Rule) string {
	return fmt.Sprintf("%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t", key, unit, count, rule.Shadow, rule.QuotaMode)
}

// fullKey joins the domain and the levels of a rule. Control characters, which would break a line, are quoted.
func fullKey(rule *ratelimit.Rule) string {
	var b strings.Builder
	b.WriteString(printable(rule.Domain))
	for _, match := range rule.Match {
		b.WriteByte('.')
		b.WriteString(printable(match.Key))
		if match.Kind != ratelimit.MatchAny {
			b.WriteByte('_')
			b.WriteString(printable(match.Pattern))
		}
	}
	if len(rule.Match) == 0 {
		b.WriteString(".default")
	}
	return b.String()
}

func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// unitOf names a window as envoyproxy/ratelimit does, if it has a name for it.
func unitOf(limit *ratelimit.Limit) string {
	for _, unit := range units {
		if unit.length == limit.Window {
			return strings.ToUpper(unit.name)
		}
	}
	return limit.WindowName()
}

// algorithmOf names what envoyproxy/ratelimit does not have.
func algorithmOf(limit *ratelimit.Limit) string {
	if limit.Algorithm == ratelimit.FixedWindow {
		return ""
	}
	return ", algorithm: " + limit.Algorithm.String()
}

func doing(rule *ratelimit.Rule) string {
	switch {
	case rule.Unlimited:
		return ", unlimited: true"
	case rule.Action == ratelimit.ActionDeny:
		return ", action: deny"
	default:
		return ", action: allow"
	}
}
