package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	benchExact    = 100_000
	benchPatterns = 10_000
)

// BenchmarkMatchExact looks up values in a table of 100,000 exact rules, a different one each time. Goal: under 1 µs,
// no allocation.
func BenchmarkMatchExact(b *testing.B) {
	table := exactTable(b)
	entries := make([][]ratelimit.Entry, benchExact)
	for i := range entries {
		entries[i] = []ratelimit.Entry{{Key: "user", Value: fmt.Sprintf("user-%06d", (i*7919)%benchExact)}}
	}
	benchMatch(b, table, entries)
}

// BenchmarkMatchExactMiss looks for values that only the bare key matches.
func BenchmarkMatchExactMiss(b *testing.B) {
	table := exactTable(b)
	entries := make([][]ratelimit.Entry, benchExact)
	for i := range entries {
		entries[i] = []ratelimit.Entry{{Key: "user", Value: fmt.Sprintf("nobody-%06d", i)}}
	}
	benchMatch(b, table, entries)
}

// BenchmarkMatchPatterns looks up values among 10,000 patterns of one kind at one level. Goal: under 5 µs.
func BenchmarkMatchPatterns(b *testing.B) {
	address := func(i int) string { return fmt.Sprintf("10.%d.%d", i/256, i%256) }
	for _, kind := range []struct {
		name  string
		match func(i int) *Pattern
		value func(i int) string // of the wildcard, where match is nil; else of the entry
		entry func(i int) string
	}{
		{
			name:  "cidr4",
			match: func(i int) *Pattern { return &Pattern{ratelimit.MatchCIDR, address(i) + ".0/24"} },
			entry: func(i int) string { return address(i) + ".77" },
		},
		{
			name:  "cidr6",
			match: func(i int) *Pattern { return &Pattern{ratelimit.MatchCIDR, fmt.Sprintf("2001:db8:%x::/48", i)} },
			entry: func(i int) string { return fmt.Sprintf("2001:db8:%x::77", i) },
		},
		{
			name:  "prefix",
			match: func(i int) *Pattern { return &Pattern{ratelimit.MatchPrefix, fmt.Sprintf("/api/v1/tenant-%05d/", i)} },
			entry: func(i int) string { return fmt.Sprintf("/api/v1/tenant-%05d/orders", i) },
		},
		{
			name: "suffix",
			match: func(i int) *Pattern {
				return &Pattern{ratelimit.MatchSuffix, fmt.Sprintf(".tenant-%05d.example.org", i)}
			},
			entry: func(i int) string { return fmt.Sprintf("www.tenant-%05d.example.org", i) },
		},
		{
			name:  "wildcard",
			value: func(i int) string { return fmt.Sprintf("tenant-%05d-*-blue", i) },
			entry: func(i int) string { return fmt.Sprintf("tenant-%05d-x-blue", i) },
		},
		{
			name: "glob",
			match: func(i int) *Pattern {
				return &Pattern{ratelimit.MatchGlob, fmt.Sprintf("/api/v1/tenant-%05d/*/items", i)}
			},
			entry: func(i int) string { return fmt.Sprintf("/api/v1/tenant-%05d/orders/items", i) },
		},
		{
			name:  "regex",
			match: func(i int) *Pattern { return &Pattern{ratelimit.MatchRegex, fmt.Sprintf(`tenant-%05d-[0-9]+`, i)} },
			entry: func(i int) string { return fmt.Sprintf("tenant-%05d-4711", i) },
		},
	} {
		b.Run(kind.name, func(b *testing.B) {
			definitions := make([]Definition, benchPatterns)
			for i := range definitions {
				definitions[i] = Definition{Key: "key", Action: ratelimit.ActionDeny}
				if kind.match != nil {
					definitions[i].Match = kind.match(i)
				} else {
					definitions[i].Value = kind.value(i)
				}
			}
			table := compiled(b, definitions...)
			entries := make([][]ratelimit.Entry, benchPatterns)
			for i := range entries {
				entries[i] = []ratelimit.Entry{{Key: "key", Value: kind.entry((i * 7919) % benchPatterns)}}
			}
			benchMatch(b, table, entries)
		})
	}
}

// BenchmarkLoad reads, checks and compiles a file of 100,000 rules. Goal: under 2 s.
func BenchmarkLoad(b *testing.B) {
	var text strings.Builder
	text.WriteString("domain: edge\ndescriptors:\n")
	for i := range benchExact {
		fmt.Fprintf(&text, "  - key: user\n    value: user-%06d\n    rate_limit:\n      unit: minute\n      requests_per_unit: %d\n", i, i%1000+1)
	}
	path := filepath.Join(b.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		table, err := Load([]string{path}, Options{})
		if err != nil || table.Len() != benchExact {
			b.Fatalf("%v", err)
		}
	}
}

func exactTable(tb testing.TB) *Table {
	definitions := make([]Definition, benchExact, benchExact+1)
	for i := range definitions {
		definitions[i] = Definition{Key: "user", Value: fmt.Sprintf("user-%06d", i), Action: ratelimit.ActionDeny}
	}
	return compiled(tb, append(definitions, Definition{Key: "user", Action: ratelimit.ActionAllow})...)
}

// compiled builds a table of one domain, "edge".
func compiled(tb testing.TB, definitions ...Definition) *Table {
	tb.Helper()
	table, err := Compile(Options{}, &Source{Name: "test", Domains: []Domain{{Name: "edge", Descriptors: definitions}}})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

func benchMatch(b *testing.B, table *Table, entries [][]ratelimit.Entry) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if table.Match("edge", entries[i]).Rule == nil {
			b.Fatalf("%v matches nothing", entries[i])
		}
		if i++; i == len(entries) {
			i = 0
		}
	}
}
