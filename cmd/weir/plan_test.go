package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/client"
)

func readText(t *testing.T, text string) ([]fileRule, int, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rules, skipped, err := readRules(path, nil)
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), path, "F"))
	}
	return rules, skipped, err
}

func TestReadRulesRefuses(t *testing.T) {
	const good = "scope: user, identifier_pattern: a, limit: 1, window_seconds: 1"
	for text, want := range map[string]string{
		"":                           "F: it is empty: write a list of rules, or [] for none",
		"domain: edge":               "it is no list of rules",
		"[]\n---\n[]":                "more after the first YAML document",
		"- [1":                       "yaml: line 1",
		"- text":                     "F:1: this is no rule: write scope",
		"- {limt: 1}":                `there is no field "limt": write scope,`,
		"- {}":                       "scope: it is missing: write service, user or endpoint\nidentifier_pattern: it is missing",
		"- {" + good + ", scope: a}": "already defined",
		"- {scope: users, identifier_pattern: a, limit: 1, window_seconds: 1}":                                         `scope: there is no scope "users"`,
		"- {scope: user, identifier_pattern: a, limit: 0, window_seconds: 1}":                                          "limit: 0 is out of range: write 1 to",
		"- {scope: user, identifier_pattern: a, limit: 1, window_seconds: 99999999999}":                                "window_seconds: 99999999999 is out of range",
		"- {scope: user, identifier_pattern: a, limit: many, window_seconds: 1}":                                       "line 1: cannot unmarshal !!str `many` into int64",
		"- {" + good + ", algorithm: gcra}":                                                                            `algorithm: unknown algorithm "gcra": write one of fixed_window`,
		"- {" + good + ", algorithm: fixed_window, burst: 5}":                                                          "burst has no meaning for fixed_window",
		"- {" + good + "}\n- {" + good + "}":                                                                           "F:2: user:a is there twice, first in line 1: keep one of them",
		"- {scope: a}\n- {scope: b, identifier_pattern: a}":                                                            "F:2: scope: there is no scope \"b\"",
		"- {scope: user, identifier_pattern: a, limit: 1, window_seconds: 1, burst: -1}":                               "burst -1 is out of range",
		"- {scope: user, identifier_pattern: a, limit: 1, window_seconds: 1, enabled: maybe}":                          "cannot unmarshal",
		"x: &x\n" + strings.Repeat("a", 10):                                                                            "F: ",
		"rules: text":                                                                                                  "it is no list of rules",
		"- {scope: user, identifier_pattern: \"\\x1b[31m\", limit: 1, window_seconds: 1, \"\\x1b[2J\": 1, window: 1s}": "there is no field \"\uFFFD[2J\"",
	} {
		_, _, err := readText(t, text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	many := strings.Repeat("- {}\n", 200)
	if _, _, err := readText(t, many); err == nil || !strings.Contains(err.Error(), "and 150 more") {
		t.Errorf("200 faulty rules: %.300v", err)
	}
	if _, _, err := readRules(filepath.Join(t.TempDir(), "none.yaml"), nil); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestReadRules(t *testing.T) {
	rules, skipped, err := readText(t, `
rules:
  - &base {scope: user, identifier_pattern: "*", limit: 100, window_seconds: 60}
  - {<<: *base, identifier_pattern: "ann", enabled: false, name: Ann, burst: 5, algorithm: leaky_bucket}
  - {id: f, name: x, domain: edge, scope: "", identifier_pattern: "", limit: 0, window_seconds: 0, source: file, path: a|b, action: deny, limits: [{limit: 1}]}
`)
	if err != nil || len(rules) != 2 || skipped != 1 {
		t.Fatalf("%d rules, %d skipped, %v", len(rules), skipped, err)
	}
	first, second := rules[0].spec(), rules[1].spec()
	if first.Name != "user-*" || first.Algorithm != "token_bucket" || !*first.Enabled || first.Key() != "user:*" {
		t.Errorf("defaults: %+v", first)
	}
	if second.Name != "Ann" || *second.Enabled || second.Limit != 100 || second.Burst != 5 || second.Key() != "user:ann" {
		t.Errorf("got %+v", second)
	}
}

// anyRule draws a rule as a server may have it.
func anyRule() *rapid.Generator[client.Rule] {
	return rapid.Custom(func(t *rapid.T) client.Rule {
		r := client.Rule{
			Scope:             rapid.SampledFrom([]string{"user", "endpoint"}).Draw(t, "scope"),
			IdentifierPattern: rapid.SampledFrom([]string{"*", "a", "b", "c*", "/x: y", "no", "1"}).Draw(t, "pattern"),
			Name:              rapid.SampledFrom([]string{"n", "m: {", "true"}).Draw(t, "name"),
			Limit:             rapid.Int64Range(1, 3).Draw(t, "limit"),
			WindowSeconds:     rapid.Int64Range(1, 3).Draw(t, "window"),
			Algorithm:         rapid.SampledFrom([]string{"fixed_window", "token_bucket", "leaky_bucket"}).Draw(t, "algorithm"),
			Enabled:           rapid.Bool().Draw(t, "enabled"),
			Source:            "api", Domain: "k1s0", Action: "limit", Version: rapid.Int64Range(1, 9).Draw(t, "version"),
		}
		if r.Algorithm != "fixed_window" {
			r.Burst = rapid.Int64Range(0, 3).Draw(t, "burst")
		}
		return r
	})
}

func ruleSet(t *rapid.T, label string) []client.Rule {
	rules := rapid.SliceOfNDistinct(anyRule(), 0, 8, func(r client.Rule) string { return r.Key() }).Draw(t, label)
	for i := range rules {
		rules[i].ID = label + fmt.Sprint(i)
	}
	return rules
}

// What is printed of one server and applied to another makes the second one like the first, and then there is nothing to do.
func TestPlanMakesRulesEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := ruleSet(t, "from"), ruleSet(t, "to")
		text, err := yaml.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		wanted := read(t, text)
		for i := range wanted {
			wanted[i].Version = 0 // it is another server's
		}
		p, err := newPlan(wanted, to, true)
		if err != nil {
			t.Fatal(err)
		}
		after := carriedOut(t, p, to)
		again, err := newPlan(wanted, after, true)
		if err != nil || len(again.Changes) != 0 || again.Unchanged != len(from) {
			t.Fatalf("applied twice: %+v, %v", again, err)
		}
		kept, err := newPlan(wanted, to, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range kept.Changes {
			if c.Action == "delete" {
				t.Fatalf("deletes %s without being asked", c.Rule)
			}
		}
	})
}

func read(t *rapid.T, text []byte) []fileRule {
	entries, err := entriesOf(text)
	if err != nil {
		t.Fatal(err)
	}
	var rules []fileRule
	for _, node := range entries {
		rule, err := parseRule(node)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		rules = append(rules, rule)
	}
	return rules
}

// carriedOut does with rules what a server would do.
func carriedOut(t *rapid.T, p *plan, rules []client.Rule) []client.Rule {
	byID := map[string]client.Rule{}
	for _, r := range rules {
		byID[r.ID] = r
	}
	for i, c := range p.Changes {
		before, known := byID[c.ID]
		if c.Action != "create" && (!known || before.Version != c.version) {
			t.Fatalf("%s of %s at version %d, the server has %+v", c.Action, c.ID, c.version, before)
		}
		delete(byID, c.ID)
		if c.Action == "delete" {
			continue
		}
		for _, other := range byID {
			if other.Key() == c.spec.Key() {
				t.Fatalf("%s of %s meets another rule for it", c.Action, c.spec.Key())
			}
		}
		id := c.ID
		if id == "" {
			id = fmt.Sprint("new", i)
		}
		byID[id] = client.Rule{
			ID: id, Version: before.Version + 1, Source: "api", Name: c.spec.Name, Scope: c.spec.Scope, IdentifierPattern: c.spec.IdentifierPattern,
			Limit: c.spec.Limit, WindowSeconds: c.spec.WindowSeconds, Algorithm: c.spec.Algorithm, Burst: c.spec.Burst, Enabled: *c.spec.Enabled,
		}
	}
	var after []client.Rule
	for _, r := range byID {
		after = append(after, r)
	}
	return after
}

func TestPlanByID(t *testing.T) {
	have := []client.Rule{{ID: "1", Scope: "user", IdentifierPattern: "a", Limit: 1, WindowSeconds: 1, Algorithm: "token_bucket", Burst: 1, Name: "n", Enabled: true, Version: 3, Source: "api"}}
	one := func(fields string) []fileRule {
		rules, _, err := readText(t, "- {id: '1', scope: user, limit: 1, window_seconds: 1, name: n, "+fields+"}")
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	p, err := newPlan(one("identifier_pattern: b, version: 3"), have, true)
	if err != nil || len(p.Changes) != 1 || p.Changes[0].Action != "update" || p.Changes[0].Fields[0] != (fieldChange{"identifier_pattern", "a", "b"}) || p.Changes[0].version != 3 {
		t.Errorf("a new pattern: %+v, %v", p, err)
	}
	if _, err := newPlan(one("identifier_pattern: b, version: 2"), have, true); !errors.Is(err, client.ErrStale) || !strings.Contains(err.Error(), "line 1: the file has version 2 of user:a, the server has 3") {
		t.Errorf("an old version: %v", err)
	}
	if p, err := newPlan(one("identifier_pattern: a, version: 2"), have, true); err != nil || len(p.Changes) != 0 || p.Unchanged != 1 {
		t.Errorf("an old version of what is the same: %+v, %v", p, err)
	}
	both := append(one("identifier_pattern: b"), fileRule{Scope: "user", IdentifierPattern: "a", Limit: 1, WindowSeconds: 1, Algorithm: "token_bucket", Name: "n", Enabled: new(true)})
	if _, err := newPlan(both, have, false); err == nil || !strings.Contains(err.Error(), "there twice") {
		t.Errorf("named twice: %v", err)
	}
}
