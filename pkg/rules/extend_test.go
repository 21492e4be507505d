package rules

import (
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const extended = `
domain: k1s0
default: {limits: [{limit: 7, window: 1m}]}
descriptors:
  - {key: user, value: taken, limits: [{limit: 1, window: 1m}]}
  - {key: user, value: off, enabled: false, limits: [{limit: 1, window: 1m}]}
  - {key: user, value: "a*", id: 018f3f5e-9d3c-7c7b-8f6e-0d9c1e2b3a4d, limits: [{limit: 2, window: 1m}]}
  - {key: plan, descriptors: [{key: user, limits: [{limit: 3, window: 1m}]}]}
---
domain: edge
descriptors: [{key: user, limits: [{limit: 4, window: 1m}]}]
`

func definition(id, key, value string, count int64) Definition {
	return Definition{
		ID: id, Key: key, Value: value,
		Limits: []ratelimit.Limit{{Algorithm: ratelimit.TokenBucket, Count: count, Window: time.Minute}},
	}
}

func extensionOf(domain string, definitions ...Definition) *Source {
	return &Source{Name: "api", Domains: []Domain{{Name: domain, Descriptors: definitions}}}
}

func mustCompile(t *testing.T, text string) *Table {
	t.Helper()
	source, problems := Parse("rules.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	table, err := Compile(Options{}, source)
	if err != nil {
		t.Fatal(err)
	}
	source.forgetText()
	return table
}

// countOf is the limit that applies to one entry, 0 if none does.
func countOf(table *Table, domain, key, value string) int64 {
	rule := table.Match(domain, []ratelimit.Entry{{Key: key, Value: value}}).Rule
	if rule == nil || rule.Disabled {
		return 0
	}
	return rule.Limits[0].Count
}

func TestExtend(t *testing.T) {
	base := mustCompile(t, extended)
	table, left, err := base.Extend(nil, extensionOf("k1s0",
		definition("1", "user", "taken", 100), definition("2", "user", "off", 100), definition("3", "plan", "", 100),
		definition("018f3f5e-9d3c-7c7b-8f6e-0d9c1e2b3a4d", "user", "copied", 100),
		definition("5", "user", "new", 100), definition("6", "user", "ab*", 100), definition("7", "user", "", 100),
		definition("8", "user", "b*", 100)))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, each := range left {
		ids = append(ids, each.ID)
	}
	if want := []string{"1", "2", "3", "018f3f5e-9d3c-7c7b-8f6e-0d9c1e2b3a4d"}; !slices.Equal(ids, want) {
		t.Errorf("left out %v, want %v", ids, want)
	}
	for _, c := range []struct {
		domain, value string
		base, want    int64
	}{
		{"k1s0", "taken", 1, 1},
		{"k1s0", "new", 7, 100},
		{"k1s0", "abc", 2, 2}, // the file's pattern comes first
		{"k1s0", "bcd", 7, 100},
		{"k1s0", "copied", 7, 100}, // by the rule for any user
		{"edge", "new", 4, 4},
	} {
		if got := countOf(base, c.domain, "user", c.value); got != c.base {
			t.Errorf("%s in %s: limit %d before, want %d", c.value, c.domain, got, c.base)
		}
		if got := countOf(table, c.domain, "user", c.value); got != c.want {
			t.Errorf("%s in %s: limit %d, want %d", c.value, c.domain, got, c.want)
		}
	}
	if table.Hash() == base.Hash() {
		t.Error("the hash did not change")
	}
	for i, rule := range base.Rules() {
		// Rules of a domain that the extension does not touch are listed as before, with their lines.
		if rule.Domain == "edge" && (table.Rules()[i].Source != rule.Source || rule.Source != "rules.yaml:11") {
			t.Errorf("%s was at %s, now at %s", rule.ID, rule.Source, table.Rules()[i].Source)
		}
	}
}

func TestExtendRefusesWhatIsWrongInTheExtension(t *testing.T) {
	base := mustCompile(t, extended)
	for name, source := range map[string]*Source{
		"two for one place": extensionOf("k1s0", definition("1", "user", "new", 1), definition("2", "user", "new", 2)),
		"no limit":          extensionOf("k1s0", definition("1", "user", "new", -1)),
	} {
		if table, left, err := base.Extend(nil, source); err == nil || table != nil || left != nil {
			t.Errorf("%s: %v, %v, %v", name, table, left, err)
		}
	}
}

func TestExtendOfASafeTableStaysSafe(t *testing.T) {
	safe, err := Safe(ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 9, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	table, left, err := safe.Extend(nil, extensionOf("k1s0", definition("1", "user", "new", 100)))
	if err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
	for value, want := range map[string]int64{"new": 100, "other": 9} {
		if got := countOf(table, "k1s0", "user", value); got != want {
			t.Errorf("%s: limit %d, want %d", value, got, want)
		}
	}
	if got := countOf(table, "elsewhere", "user", "new"); got != 9 || table.Len() != 2 || table.Hash() == safe.Hash() {
		t.Errorf("another domain: limit %d; %d rules, hash %s", got, table.Len(), table.Hash())
	}
}

func TestKnows(t *testing.T) {
	table := mustCompile(t, "domain: d\ndescriptors:\n  - {key: user, descriptors: [{key: path, limits: [{limit: 1, window: 1s}]}]}\n  - {key: 'x-*', limits: [{limit: 1, window: 1s}]}\n---\n"+extended)
	for _, c := range []struct {
		domain, key string
		want        bool
	}{
		{"d", "user", true},
		{"d", "x-1", true},
		{"d", "path", false},
		{"d", "", false},
		{"k1s0", "anything", true}, // by the default
		{"edge", "user", true},
		{"edge", "plan", false},
		{"nowhere", "user", false},
	} {
		if got := table.Knows(c.domain, c.key); got != c.want {
			t.Errorf("%s in %s: %v", c.key, c.domain, got)
		}
	}
	if got := table.Keys("k1s0"); !slices.Equal(got, []string{"plan", "user"}) {
		t.Errorf("keys %v", got)
	}
}

func TestDefines(t *testing.T) {
	table := mustCompile(t, extended)
	for _, c := range []struct {
		domain, key, value string
		want               bool
	}{
		{"k1s0", "user", "taken", true},
		{"k1s0", "user", "off", true},
		{"k1s0", "user", "a*", true},
		{"k1s0", "plan", "", true},
		{"k1s0", "user", "", false},
		{"k1s0", "user", "abc", false},
		{"edge", "user", "", true},
		{"nowhere", "user", "", false},
	} {
		if got := table.Defines(c.domain, c.key, c.value); got != c.want {
			t.Errorf("%s=%s in %s: %v", c.key, c.value, c.domain, got)
		}
	}
}
