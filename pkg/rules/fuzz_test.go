package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// FuzzLoad reads any bytes as a rule file: no panic, no hang, and every problem has a position and two parts.
func FuzzLoad(f *testing.F) {
	for _, folder := range []string{"bad", "good", "warn"} {
		paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := compileFiles([]file{{path: "fuzz.yaml", data: data}}, nil, Options{})
		if err != nil {
			checkProblems(t, data, err.(Problems)) //nolint:errorlint // the type is what is checked
			return
		}
		again, err := compileFiles([]file{{path: "fuzz.yaml", data: data}}, nil, Options{})
		if err != nil || again.Hash() != table.Hash() {
			t.Fatalf("loaded twice: other rules, or %v", err)
		}
		for _, r := range table.Rules() {
			if r.ID == "" || r.Path == "" || r.Domain == "" {
				t.Fatalf("a rule without id, path or domain: %+v", r)
			}
			checkRule(t, table, r)
		}
	})
}

func checkProblems(t *testing.T, data []byte, problems Problems) {
	t.Helper()
	lines := 2 + strings.Count(string(data), "\n") + strings.Count(string(data), "\r") +
		strings.Count(string(data), "\u0085") + strings.Count(string(data), "\u2028") + strings.Count(string(data), "\u2029")
	for _, p := range problems {
		if p.File == "" {
			continue // what is left out
		}
		if p.Line < 1 || p.Column < 1 || p.Line > lines || p.Message == "" || p.Fix == "" {
			t.Fatalf("%+v", p)
		}
	}
}

// checkRule looks for the rule with entries that it is written for, where they are not patterns.
func checkRule(t *testing.T, table *Table, r *ratelimit.Rule) {
	t.Helper()
	var entries []ratelimit.Entry
	plain := len(r.Match) > 0 && !r.Disabled
	for _, m := range r.Match {
		entries = append(entries, ratelimit.Entry{Key: m.Key, Value: m.Pattern})
		plain = plain && m.Kind == ratelimit.MatchExact && !strings.Contains(m.Key, "*")
	}
	if got := table.Match(r.Domain, entries); plain && got.Rule != r {
		t.Fatalf("%v does not match its own rule\n%v", entries, table.Explain(r.Domain, entries))
	}
	_ = table.Explain(r.Domain, entries).String()
	for i := range r.Limits {
		l := r.Limits[i]
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzMatch compares each way of matching a value with the reference, on any pattern and value.
func FuzzMatch(f *testing.F) {
	for _, seed := range [][2]string{
		{"a*b", "axb"},
		{"/api/**/x", "/api/x"},
		{"10.0.0.0/8", "10.1.1.1"},
		{"2001:db8::/32", "2001:db8::1%zone"},
		{"(a|b)+", "abab"},
		{"*", ""},
		{"**", "\xff"},
		{"/a/*", "/a//"},
		{"::ffff:10.0.0.0/104", "::ffff:10.0.0.1"},
		{"\uFFFD", "\xff"},
		{"[^a]*", "\xffb"},
		{"2001:db8::/32", "2001:db8::%"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		if len(text) > 64 || len(value) > 256 {
			return // the reference goes back
		}
		for kind := range kindNames {
			checkPattern(t, Definition{Key: "k", Match: &Pattern{kind, text}, Action: ratelimit.ActionDeny}, value)
		}
		checkPattern(t, Definition{Key: "k", Value: text, Action: ratelimit.ActionDeny}, value)
	})
}

func checkPattern(t *testing.T, d Definition, value string) {
	t.Helper()
	table, err := Compile(Options{}, &Source{Name: "fuzz", Domains: []Domain{{Name: "edge", Descriptors: []Definition{d}}}})
	if err != nil {
		return
	}
	if d.Match != nil && d.Match.Kind == ratelimit.MatchGlob && strings.Count(d.Match.Text, "**") > 4 {
		return // the reference goes back
	}
	if d.Match != nil && d.Match.Kind == ratelimit.MatchCIDR {
		d.Match = &Pattern{ratelimit.MatchCIDR, table.Rules()[0].Match[0].Pattern}
	}
	want := reference([]Definition{d}, []ratelimit.Entry{{Key: "k", Value: value}}) != nil
	got := table.Match("edge", []ratelimit.Entry{{Key: "k", Value: value}}).Rule != nil
	if got != want {
		t.Fatalf("%+v and %q: %v, not %v", d, value, got, want)
	}
}
