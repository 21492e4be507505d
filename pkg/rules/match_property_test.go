package rules

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// TestMatchEqualsReference compares tables with a matcher that tries every definition in turn, as the format describes it.
func TestMatchEqualsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		definitions := drawLevel(t, 1)
		table, err := Compile(Options{}, &Source{Name: "test", Domains: []Domain{{Name: "edge", Descriptors: definitions}}})
		if err != nil {
			t.Fatalf("%v", err)
		}
		for range 20 {
			entries := rapid.SliceOfN(drawEntry(), 0, 3).Draw(t, "entries")
			want := ""
			if d := reference(definitions, entries); d != nil && !d.Disabled && d.Action != ratelimit.ActionLimit {
				want = d.ID
			}
			got := ""
			if m := table.Match("edge", entries); m.Rule != nil {
				got = m.Rule.ID
			}
			if got != want {
				t.Fatalf("%q matches %q, not %q\n%v", entries, got, want, table.Explain("edge", entries))
			}
			if e := table.Explain("edge", entries); e.Match != table.Match("edge", entries) {
				t.Fatalf("explained %v, matched %v", e.Match, table.Match("edge", entries))
			}
		}
	})
}

// reference finds the definition for entries by trying all of them at each level.
func reference(definitions []Definition, entries []ratelimit.Entry) *Definition {
	if len(entries) == 0 {
		return nil
	}
	won := referenceLevel(definitions, entries[0])
	if won == nil || len(entries) == 1 {
		return won
	}
	return reference(won.Descriptors, entries[1:])
}

func referenceLevel(definitions []Definition, entry ratelimit.Entry) *Definition {
	var patterns []*Definition
	var exact, bare *Definition
	for i := range definitions {
		d := &definitions[i]
		wild := strings.Contains(d.Key, "*")
		switch {
		case d.Disabled:
		case d.Match != nil || wild || strings.Contains(d.Value, "*"):
			patterns = append(patterns, d)
		case d.Key != entry.Key:
		case d.Value == "":
			bare = d
		case d.Value == entry.Value:
			exact = d
		}
	}
	if exact != nil {
		return exact
	}
	slices.SortStableFunc(patterns, func(a, b *Definition) int { return b.Priority - a.Priority })
	for _, d := range patterns {
		if referenceWildcard(d.Key, entry.Key) && referencePattern(d, entry.Value) {
			return d
		}
	}
	return bare
}

// referenceWildcard fills in, byte by byte, which beginnings of the value the pattern's beginnings match.
func referenceWildcard(pattern, value string) bool {
	matches := make([]bool, len(value)+1)
	matches[0] = true
	for i := range len(pattern) {
		next := make([]bool, len(value)+1)
		for j := range next {
			if pattern[i] == '*' {
				next[j] = matches[j] || j > 0 && next[j-1]
			} else {
				next[j] = j > 0 && matches[j-1] && value[j-1] == pattern[i]
			}
		}
		matches = next
	}
	return matches[len(value)]
}

func referencePattern(d *Definition, value string) bool {
	if d.Match == nil {
		return d.Value == "" || referenceWildcard(d.Value, value)
	}
	text := d.Match.Text
	switch d.Match.Kind {
	case ratelimit.MatchPrefix:
		return strings.HasPrefix(value, text)
	case ratelimit.MatchSuffix:
		return strings.HasSuffix(value, text)
	case ratelimit.MatchGlob:
		return referenceGlob(strings.Split(text, "/"), strings.Split(value, "/"))
	case ratelimit.MatchRegex:
		if strings.Contains(text, `\Q`) && !strings.Contains(text, `\E`) {
			text += `\E`
		}
		return regexp.MustCompile(`\A(?:` + text + `)\z`).MatchString(value)
	case ratelimit.MatchCIDR:
		address, err := netip.ParseAddr(value)
		return err == nil && netip.MustParsePrefix(text).Contains(address.Unmap().WithZone(""))
	default:
		panic("unknown kind")
	}
}

func referenceGlob(pattern, path []string) bool {
	if len(pattern) == 0 {
		return len(path) == 0
	}
	if pattern[0] == "**" {
		for i := range len(path) + 1 {
			if referenceGlob(pattern[1:], path[i:]) {
				return true
			}
		}
		return false
	}
	return len(path) > 0 && referenceWildcard(pattern[0], path[0]) && referenceGlob(pattern[1:], path[1:])
}

// The alphabets are small, so that patterns and values meet.

func drawEntry() *rapid.Generator[ratelimit.Entry] {
	return rapid.Custom(func(t *rapid.T) ratelimit.Entry {
		return ratelimit.Entry{
			Key:   rapid.SampledFrom([]string{"a", "ab", "b", ""}).Draw(t, "key"),
			Value: drawValue().Draw(t, "value"),
		}
	})
}

func drawValue() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("xy/")), 0, 8, -1),
		rapid.Custom(drawAddress),
		rapid.SampledFrom([]string{"*", "x*", "\xff", "x\xffy", "1.2.3", "::", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.1%x", "::%", "1:2:3:4:5:6:7:8:9"}),
	)
}

func drawAddress(t *rapid.T) string {
	small := rapid.IntRange(0, 3)
	if rapid.Bool().Draw(t, "v4") {
		return fmt.Sprintf("10.0.%d.%d", small.Draw(t, "third"), small.Draw(t, "fourth"))
	}
	return fmt.Sprintf("2001:db8::%d:%d", small.Draw(t, "seventh"), small.Draw(t, "eighth"))
}

func drawBlock(t *rapid.T) string {
	address := netip.MustParseAddr(drawAddress(t))
	bits := rapid.IntRange(address.BitLen()-20, address.BitLen()).Draw(t, "bits")
	if rapid.IntRange(0, 9).Draw(t, "all") == 0 {
		bits = 0
	}
	return netip.PrefixFrom(address, bits).Masked().String()
}

func drawPattern(t *rapid.T) *Pattern {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("xy/")), 1, 4, -1)
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return &Pattern{ratelimit.MatchPrefix, text.Draw(t, "prefix")}
	case 1:
		return &Pattern{ratelimit.MatchSuffix, text.Draw(t, "suffix")}
	case 2:
		segment := rapid.SampledFrom([]string{"x", "y", "", "*", "x*", "*y", "x*y", "**"})
		return &Pattern{ratelimit.MatchGlob, strings.Join(rapid.SliceOfN(segment, 1, 5).Draw(t, "glob"), "/")}
	case 3:
		part := rapid.SampledFrom([]string{"x", "y", "/", ".", "x*", "(xy)?", "[^/]+", "^x", "(?i:X)", "$", "\uFFFD", "(x|y)", `\x{FFFD}`, `\Qx`})
		return &Pattern{ratelimit.MatchRegex, strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "regex"), "")}
	default:
		return &Pattern{ratelimit.MatchCIDR, drawBlock(t)}
	}
}

// drawLevel draws definitions that do not share a place.
func drawLevel(t *rapid.T, depth int) []Definition {
	taken := map[string]bool{}
	var definitions []Definition
	for range rapid.IntRange(0, 12/depth).Draw(t, "definitions") {
		d := Definition{
			ID:       rapid.StringMatching(`[a-z0-9]{12}`).Draw(t, "id"),
			Key:      rapid.SampledFrom([]string{"a", "ab", "b", "a*", "*", "*b"}).Draw(t, "key"),
			Priority: rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "priority"),
			Disabled: rapid.IntRange(0, 9).Draw(t, "disabled") == 0,
		}
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			d.Value = rapid.StringOfN(rapid.SampledFrom([]rune("xy/")), 0, 3, -1).Draw(t, "value")
		case 1:
			d.Value = rapid.StringOfN(rapid.SampledFrom([]rune("xy*")), 0, 5, -1).Draw(t, "wildcard")
		case 2:
			d.Match = drawPattern(t)
		}
		if rapid.IntRange(0, 4).Draw(t, "limited") > 0 {
			d.Action = ratelimit.ActionDeny
		}
		if depth < 3 {
			d.Descriptors = drawLevel(t, depth+1)
		}
		place := fmt.Sprintf("%q %q %v", d.Key, d.Value, d.Match)
		if d.Match != nil {
			place = fmt.Sprintf("%q %v", d.Key, *d.Match)
		}
		if !taken[place] {
			taken[place] = true
			definitions = append(definitions, d)
		}
	}
	return definitions
}
