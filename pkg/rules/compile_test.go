package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// TestCompileWithoutYAML builds a table as a control plane or a database does.
func TestCompileWithoutYAML(t *testing.T) {
	table, err := Compile(Options{},
		&Source{Name: "xds", Domains: []Domain{{
			Name: "default/eg/http",
			Descriptors: []Definition{{
				Key: "client", Value: "10.0.0.0/8",
				RateLimit: &RateLimit{Unit: "MINUTE", RequestsPerUnit: 7, Name: "seven"},
				Metadata:  map[string]any{"a": 1},
			}, {
				Key: "client", Descriptors: []Definition{{Key: "client", RateLimit: &RateLimit{Unlimited: true}}},
			}},
		}}},
		&Source{Name: "store", Domains: []Domain{{
			Descriptors: []Definition{{
				ID: "7f6d", Key: "user", Value: "b*",
				Limits: []ratelimit.Limit{{Algorithm: ratelimit.TokenBucket, Count: 5, Window: time.Minute}},
			}},
			Default: &Definition{Action: ratelimit.ActionDeny},
		}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(table.Domains(), " "); got != "default/eg/http k1s0" {
		t.Errorf("domains %s", got)
	}
	if table.Len() != 4 || len(table.Rules()) != 4 {
		t.Errorf("%d rules", table.Len())
	}
	m := table.Match("default/eg/http", entriesOf("client=10.0.0.0/8"))
	if m.Rule == nil || m.Rule.Name != "seven" || m.Rule.Source != "xds" || m.Rule.Limits[0].Window != time.Minute || m.Rule.Limits[0].Count != 7 {
		t.Errorf("got %+v", m.Rule)
	}
	if m := table.Match("default/eg/http", entriesOf("client=a,client=b")); m.Rule == nil || !m.Rule.Unlimited {
		t.Errorf("got %+v", m.Rule)
	}
	m = table.Match("k1s0", entriesOf("user=bob"))
	if m.Rule == nil || m.Rule.ID != "7f6d" || m.Rule.Limits[0].Capacity() != 5 {
		t.Errorf("got %+v", m.Rule)
	}
	if token, _ := m.Rule.Limits[0].Rate(); token == 0 {
		t.Error("the limit is not checked")
	}
}

// TestCompileProblemsWithoutYAML has no positions, so messages name the place.
func TestCompileProblemsWithoutYAML(t *testing.T) {
	_, err := Compile(Options{DefaultDomain: "main"}, &Source{Name: "store", Domains: []Domain{{
		Descriptors: []Definition{
			{Key: "user", Value: "bob", Limits: []ratelimit.Limit{{Count: 5, Window: time.Minute}}},
			{Key: "user", Value: "bob", Action: ratelimit.ActionDeny},
			{Key: "ip", Match: &Pattern{Kind: ratelimit.MatchExact, Text: "x"}, Action: ratelimit.ActionDeny},
			{Key: "a", Name: "a\xff", Action: ratelimit.ActionDeny},
			{},
		},
	}}})
	want := []string{
		`store: domain "main", user=bob: no algorithm: set one of [fixed_window sliding_window sliding_log token_bucket leaky_bucket]`,
		`store: domain "main", user=bob: two rules for the same place, user=bob: the other one is at store: merge them, or remove one`,
		`store: domain "main", ip: match kind 1 is none of a pattern: write one of cidr, prefix, suffix, glob, regex`,
		`store: domain "main", a: name "a\xff" is not UTF-8: write it in UTF-8`,
		`store: domain "main", itself: the descriptor has no key: write a key`,
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	if !errors.Is(err, ratelimit.ErrLimit) {
		t.Error("the limit's error is not wrapped")
	}
	if problems := Problems(nil); !errors.As(err, &problems) || problems[0].File != "store" || problems[0].Line != 0 {
		t.Errorf("got %#v", err)
	}
}

func TestCompileNothing(t *testing.T) {
	table, err := Compile(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if m := table.Match("edge", entriesOf("user=bob")); m != (Match{}) || table.Len() != 0 {
		t.Errorf("got %+v", m)
	}
}

func TestCompileDoesNotChangeDefinitions(t *testing.T) {
	limits := []ratelimit.Limit{{Algorithm: ratelimit.LeakyBucket, Count: 5, Window: time.Minute}}
	source := &Source{Name: "s", Domains: []Domain{{Name: "edge", Descriptors: []Definition{{Key: "user", Limits: limits}}}}}
	if _, err := Compile(Options{}, source); err != nil {
		t.Fatal(err)
	}
	if limits[0].Burst != 0 {
		t.Error("the limit was changed")
	}
}

func TestProblemsAreBounded(t *testing.T) {
	definitions := make([]Definition, maxProblems+10)
	_, err := Compile(Options{}, &Source{Name: "s", Domains: []Domain{{Name: "edge", Descriptors: definitions}}})
	problems := Problems(nil)
	if !errors.As(err, &problems) || len(problems) != maxProblems+1 || problems[maxProblems].Message != "10 more problems are not shown" {
		t.Errorf("%d problems, the last %v", len(problems), problems[len(problems)-1])
	}
}

func TestMergeDomains(t *testing.T) {
	files := []file{
		{"a.yaml", []byte("domain: edge\ndefault: {action: deny}\ndescriptors:\n- {key: user, value: 'a*', action: deny}\n- {key: user, action: deny}\n")},
		{"b.yaml", []byte("domain: edge\ndescriptors:\n- {key: user, value: '*b', action: allow}\n- {key: plan, action: allow}\n")},
	}
	table, err := compileFiles(files, nil, Options{MergeDomains: true})
	if err != nil {
		t.Fatal(err)
	}
	for descriptor, want := range map[string]string{"user=ab": "a.yaml:4", "user=bb": "b.yaml:3", "user=c": "a.yaml:5", "plan=x": "b.yaml:4", "x=y": "a.yaml:2"} {
		if m := table.Match("edge", entriesOf(descriptor)); m.Rule == nil || m.Rule.Source != want {
			t.Errorf("%s: got %+v, want %s", descriptor, m.Rule, want)
		}
	}
	files = append(files, file{"c.yaml", []byte("domain: edge\ndefault: {action: allow}\ndescriptors:\n- {key: plan, action: deny}\n")})
	_, err = compileFiles(files, nil, Options{MergeDomains: true})
	want := `c.yaml:2:10: domain "edge" already has a default at a.yaml:2:10: remove one of them
c.yaml:4:9: two rules for the same place, plan: the other one is at b.yaml:4:3: merge them, or remove one`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestIDs(t *testing.T) {
	const rules = "domain: edge\ndescriptors:\n- {key: user, value: bob, action: deny}\n- {key: plan, value: free, descriptors: [{key: user, action: deny}]}\n- {key: path, id: mine, action: deny}\n"
	ids := func(text string) map[string]string {
		found := map[string]string{}
		for _, r := range parsed(t, text).Rules() {
			found[r.Path] = r.ID
		}
		return found
	}
	got := ids(rules)
	// These are kept in databases and dashboards: they must not change from one release to the next.
	for path, id := range map[string]string{
		"user=bob":       "adcb495d-604e-5e2c-83d1-6ac2cc5b6256",
		"plan=free|user": "c1cf6a65-bc88-5d0f-b457-7dde7eb53794",
		"path":           "mine",
	} {
		if got[path] != id {
			t.Errorf("%s has id %s, not %s", path, got[path], id)
		}
	}
	moved := ids("# moved down\n\n" + rules + "- {key: more, action: deny}\n")
	for path, id := range got {
		if moved[path] != id {
			t.Errorf("%s has another id in a longer file", path)
		}
	}
	if other := ids(strings.Replace(rules, "edge", "other", 1)); other["user=bob"] == got["user=bob"] {
		t.Error("one id in two domains")
	}
}

func TestPathsAreUnambiguous(t *testing.T) {
	type levels = []ratelimit.EntryMatch
	bare, exact, prefix := ratelimit.MatchAny, ratelimit.MatchExact, ratelimit.MatchPrefix
	seen := map[string]levels{}
	for _, each := range []levels{
		{{Key: "a", Kind: bare}, {Key: "b", Kind: bare}},
		{{Key: "a|b", Kind: bare}},
		{{Key: "a%7Cb", Kind: bare}},
		{{Key: "a", Kind: exact, Pattern: "b=c"}},
		{{Key: "a=b", Kind: exact, Pattern: "c"}},
		{{Key: "a=b=c", Kind: bare}},
		{{Key: "a", Kind: exact, Pattern: "b|c"}},
		{{Key: "a", Kind: exact, Pattern: "b"}, {Key: "c", Kind: bare}},
		{{Key: "a", Kind: exact, Pattern: "prefix:b"}},
		{{Key: "a", Kind: prefix, Pattern: "b"}},
		{{Key: "a~prefix:b", Kind: bare}},
		{{Key: "a", Kind: exact, Pattern: "\n"}},
		{{Key: "a", Kind: exact, Pattern: "%0A"}},
		{{Key: "a", Kind: exact, Pattern: "\xff"}},
	} {
		path := pathOf(each)
		if other, ok := seen[path]; ok {
			t.Errorf("%v and %v are both %s", each, other, path)
		}
		seen[path] = each
		if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == '\uFFFD' }) {
			t.Errorf("%q does not print", path)
		}
	}
}

func TestHash(t *testing.T) {
	const rules = "domain: edge\ndefault: {action: deny}\ndescriptors:\n- {key: user, value: 'a*', limits: [{rate: 5/s}]}\n- {key: user, value: '*b', action: allow}\n- {key: exempt}\n"
	base := parsed(t, rules).Hash()
	if len(base) != 64 {
		t.Errorf("hash %q", base)
	}
	same := map[string]string{
		"comments and layout": "# hello\n\n" + strings.ReplaceAll(rules, "- {", "-   {"),
		"another spelling":    strings.Replace(rules, "rate: 5/s", "limit: 5, window: 1s, burst: 5", 1),
	}
	for name, text := range same {
		if parsed(t, text).Hash() != base {
			t.Errorf("%s: another hash", name)
		}
	}
	seen := map[string]string{base: "the rules"}
	for name, text := range map[string]string{
		"a limit":           strings.Replace(rules, "5/s", "6/s", 1),
		"a name":            strings.Replace(rules, "rate: 5/s", "rate: 5/s, name: x", 1),
		"metadata":          strings.Replace(rules, "action: allow", "action: allow, metadata: {a: 1}", 1),
		"other metadata":    strings.Replace(rules, "action: allow", "action: allow, metadata: {a: 2}", 1),
		"an action":         strings.Replace(rules, "action: allow", "action: deny", 1),
		"the default":       strings.Replace(rules, "default: {action: deny}\n", "", 1),
		"a domain":          strings.Replace(rules, "edge", "egde", 1),
		"a disabled rule":   strings.Replace(rules, "action: allow", "action: allow, enabled: false", 1),
		"no exemption":      strings.Replace(rules, "- {key: exempt}\n", "", 1),
		"order":             "domain: edge\ndefault: {action: deny}\ndescriptors:\n- {key: user, value: '*b', action: allow}\n- {key: user, value: 'a*', limits: [{rate: 5/s}]}\n- {key: exempt}\n",
		"a counter for all": strings.Replace(rules, "action: allow", "action: allow, share_threshold: true", 1),
		"another domain":    rules + "---\ndomain: more\n",
		"a priority":        strings.Replace(rules, "action: allow", "action: allow, priority: 1", 1),
	} {
		hash := parsed(t, text).Hash()
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[hash] = name
	}
	reordered := []file{{"z.yaml", []byte("domain: b\n")}, {"a.yaml", []byte("domain: a\n")}}
	first, _ := compileFiles(reordered, nil, Options{})
	second, _ := compileFiles([]file{{"1.yaml", reordered[1].data}, {"2.yaml", reordered[0].data}}, nil, Options{})
	if first.Hash() != second.Hash() {
		t.Error("the order of files counts across domains")
	}
}

func TestSafe(t *testing.T) {
	table, err := Safe(ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 100, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, domain := range []string{"edge", ""} {
		m := table.Match(domain, entriesOf("user=bob"))
		if m.Rule == nil || !m.Default || !m.DomainKnown || m.Rule.Limits[0].Burst != 100 {
			t.Errorf("got %+v", m)
		}
	}
	if table.Len() != 1 || len(table.Domains()) != 0 || table.Hash() == "" {
		t.Errorf("%d rules, domains %v", table.Len(), table.Domains())
	}
	if e := table.Explain("edge", nil); !strings.Contains(e.Reason, "safe default") {
		t.Error(e)
	}
	if _, err := Safe(ratelimit.Limit{}); !errors.Is(err, ratelimit.ErrLimit) {
		t.Errorf("got %v", err)
	}
}

func TestExplain(t *testing.T) {
	table := parsed(t, `
domain: edge
default: {action: deny}
descriptors:
- key: plan
  value: free
  descriptors:
  - {key: user, match: {prefix: a}, name: as, action: deny}
  - {key: user, value: "*z", action: deny}
  - {key: user, value: bob, action: deny}
- {key: exempt}
---
domain: bare
descriptors: [{key: user, action: deny}]
`)
	for descriptor, want := range map[string]string{
		"plan=free,user=abc": `1. plan=free
   - exact value: plan=free matches
2. user=abc
   - exact value: none
   - pattern: user~prefix:a matches
rule as applies (test.yaml:8): plan=free|user~prefix:a has a limit at level 2, the descriptor's depth
`,
		"plan=free,user=x\n": `1. plan=free
   - exact value: plan=free matches
2. user=x%0A
   - exact value: none
   - pattern: user~prefix:a does not match
   - pattern: user=*z does not match
   - any value: none
the default of domain "edge" applies (test.yaml:3): no definition at level 2 fits user=x%0A
`,
		"plan=free": `1. plan=free
   - exact value: plan=free matches
the default of domain "edge" applies (test.yaml:3): plan=free has no limit at level 1, the descriptor's depth
`,
		"exempt=1,user=2": `1. exempt=1
   - exact value: none
   - any value: exempt matches
the default of domain "edge" applies (test.yaml:3): exempt has no descriptors below it, and the descriptor has 2 levels
`,
		"": "the default of domain \"edge\" applies (test.yaml:3): the descriptor has no entries\n",
	} {
		if got := table.Explain("edge", entriesOf(descriptor)).String(); got != want {
			t.Errorf("%q: got\n%swant\n%s", descriptor, got, want)
		}
	}
	if got := table.Explain("bare", entriesOf("path=/")).Reason; got != `nothing matches: no definition at level 1 fits path=/, and domain "bare" has no default` {
		t.Error(got)
	}
	if got := table.Explain("egde", nil).Reason; got != `domain "egde" is unknown: nothing matches; known are: bare, edge` {
		t.Error(got)
	}
}

func TestExplainIsBounded(t *testing.T) {
	definitions := make([]Definition, 1000)
	for i := range definitions {
		definitions[i] = Definition{Key: "user", Match: &Pattern{ratelimit.MatchPrefix, strings.Repeat("x", i+1)}, Priority: i, Action: ratelimit.ActionDeny}
	}
	e := compiled(t, definitions...).Explain("edge", entriesOf("user=xx"))
	if tried := e.Steps[0].Tried; len(tried) > maxTried+5 || e.Match.Rule == nil || !strings.Contains(e.String(), "more patterns do not match") {
		t.Errorf("%d lines\n%v", len(tried), e)
	}
}
