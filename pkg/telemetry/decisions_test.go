package telemetry

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestDecisions(t *testing.T) {
	m := newMetrics(t)
	rule, unnamed := newRule("edge", "per-user"), newRule("edge", "")
	user := entries("user", "ann")
	for range 3 {
		m.Decided(rule, user, ratelimit.OutcomeAllowed, 2)
	}
	m.Decided(rule, user, ratelimit.OutcomeDenied, 2)
	m.Decided(rule, user, ratelimit.OutcomeAllowed, 0)  // a look
	m.Decided(rule, user, ratelimit.OutcomeAllowed, -5) // giving back
	m.Decided(unnamed, user, ratelimit.OutcomeFailedOpen, 1)
	m.Decided(nil, user, ratelimit.OutcomeNone, 1)
	m.UnknownDomain()
	m.UnknownDomain()
	expect(t, m, "weir_decisions_total",
		`{domain="edge",outcome="allowed",rule="per-user",value=""} 5`,
		`{domain="edge",outcome="denied",rule="per-user",value=""} 1`,
		`{domain="edge",outcome="allowed",rule="user",value=""} 0`,
		`{domain="edge",outcome="denied",rule="user",value=""} 0`,
		`{domain="edge",outcome="failed_open",rule="user",value=""} 1`,
		`{domain="",outcome="none",rule="unmatched",value=""} 1`,
		`{domain="unknown",outcome="none",rule="",value=""} 2`)
	expect(t, m, "weir_hits_total",
		`{domain="edge",rule="per-user",value=""} 8`,
		`{domain="edge",rule="user",value=""} 1`,
		`{domain="",rule="unmatched",value=""} 1`,
		`{domain="unknown",rule="",value=""} 0`)
}

func TestEveryOutcomeIsCounted(t *testing.T) {
	if got := len(ratelimit.Outcomes()); got != outcomes {
		t.Fatalf("there are %d outcomes, outcomes is %d", got, outcomes)
	}
	m := newMetrics(t)
	rule := newRule("edge", "r")
	for i, outcome := range ratelimit.Outcomes() {
		for range i + 1 {
			m.Decided(rule, nil, outcome, 1)
		}
	}
	m.Decided(rule, nil, 200, 1) // none of them: not counted, no panic
	var want []string
	for i, outcome := range ratelimit.Outcomes() {
		want = append(want, fmt.Sprintf(`{domain="edge",outcome="%s",rule="r",value=""} %d`, outcome, i+1))
	}
	expect(t, m, "weir_decisions_total", want...)
}

func TestRunTimeValues(t *testing.T) {
	detailed := newRule("edge", "detailed")
	detailed.DetailedMetric = true
	shown := newRule("edge", "shown")
	shown.Match = []ratelimit.EntryMatch{{Key: "plan"}, {Key: "path", ValueToMetric: true}, {Key: "method", ValueToMetric: true}}
	m := newMetrics(t)
	m.Decided(detailed, entries("plan", "free", "user", "ann"), ratelimit.OutcomeAllowed, 1)
	m.Decided(shown, entries("plan", "free", "path", "/a|b", "method", ""), ratelimit.OutcomeDenied, 1)
	m.Decided(shown, entries("plan", "paid", "path", "/a|b", "method", ""), ratelimit.OutcomeDenied, 1)
	expect(t, m, "weir_decisions_total",
		`{domain="edge",outcome="allowed",rule="detailed",value="plan=free|user=ann"} 1`,
		`{domain="edge",outcome="denied",rule="detailed",value="plan=free|user=ann"} 0`,
		`{domain="edge",outcome="allowed",rule="shown",value="path=/a|b|method="} 0`,
		`{domain="edge",outcome="denied",rule="shown",value="path=/a|b|method="} 2`)
}

func TestCapOnValues(t *testing.T) {
	rule := newRule("edge", "r")
	rule.DetailedMetric = true
	m := newMetrics(t) // 3 values
	for i := range 1000 {
		m.Decided(rule, entries("user", strconv.Itoa(i)), ratelimit.OutcomeAllowed, 1)
		m.Decided(rule, entries("user", "0"), ratelimit.OutcomeAllowed, 1)
	}
	expect(t, m, "weir_hits_total",
		`{domain="edge",rule="r",value="user=0"} 1001`,
		`{domain="edge",rule="r",value="user=1"} 1`,
		`{domain="edge",rule="r",value="user=2"} 1`,
		`{domain="edge",rule="r",value="other"} 997`)

	none := NewMetrics(MetricsOptions{MaxValues: 0})
	none.Decided(rule, entries("user", "ann"), ratelimit.OutcomeAllowed, 1)
	expect(t, none, "weir_hits_total", `{domain="edge",rule="r",value="other"} 1`)
}

func TestCapOnRules(t *testing.T) {
	m := newMetrics(t) // 10 rules
	for i := range 100 {
		rule := newRule("edge", "r"+strconv.Itoa(i))
		rule.DetailedMetric = i%2 == 0 // values of a rule without a label of its own would be of no rule
		for range 2 {
			m.Decided(rule, entries("user", strconv.Itoa(i)), ratelimit.OutcomeAllowed, 1)
		}
	}
	samples := scrape(t, m, "weir_hits_total")
	if len(samples) != 11 {
		t.Errorf("%d series: %v", len(samples), samples)
	}
	if want := `{domain="other",rule="other",value=""} 180`; !strings.Contains(strings.Join(samples, "\n"), want) {
		t.Errorf("no %s in %v", want, samples)
	}
}

// Names that rules share with the series of no rule must not make a scrape fail.
func TestNamesOfFixedSeries(t *testing.T) {
	m := NewMetrics(MetricsOptions{MaxRules: 2, MaxValues: 1})
	for _, rule := range []*ratelimit.Rule{
		newRule("other", "other"), newRule("edge", "a"), newRule("edge", "b"), newRule("edge", "c"),
		{Domain: "unknown"},
		{Domain: "", Name: "unmatched"},
	} {
		rule.DetailedMetric = true
		m.Decided(rule, entries("user", "other"), ratelimit.OutcomeAllowed, 1)
		m.Decided(rule, entries(), ratelimit.OutcomeAllowed, 1)
	}
	m.Decided(nil, nil, ratelimit.OutcomeNone, 1)
	m.UnknownDomain()
	if samples := scrape(t, m, "weir_decisions_total"); len(samples) == 0 {
		t.Error("nothing is shown")
	}
}

// What clients send and operators write is shown safely: a scrape is never broken by it, and never grows by it.
func TestHostileLabels(t *testing.T) {
	hostile := []string{"\xff\xfe", "a\nb", `"} 1 #`, `\`, strings.Repeat("x", 100_000), strings.Repeat("é", 100_000), "\x00", "\u2028", "a\xf0\x9f"}
	m := NewMetrics(MetricsOptions{MaxValues: 100})
	for _, text := range hostile {
		rule := newRule(text, text)
		rule.DetailedMetric = true
		m.Decided(rule, entries(text, text), ratelimit.OutcomeDenied, 1)
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if value := label.GetValue(); !utf8.ValidString(value) || len(value) > maxLabelBytes {
					t.Errorf("%s: label %s of %d bytes is %.40q", family.GetName(), label.GetName(), len(value), value)
				}
			}
		}
		if family.GetName() == "weir_hits_total" {
			shown = len(family.GetMetric())
		}
	}
	if shown != len(hostile) {
		t.Errorf("%d series for %d rules", shown, len(hostile))
	}
	scrape(t, m, "weir_hits_total")
}

func TestLabel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "bytes"))
		got := label(text)
		if !utf8.ValidString(got) || len(got) > maxLabelBytes {
			t.Fatalf("%q became %q", text, got)
		}
		if utf8.ValidString(text) && !strings.HasPrefix(text, got) {
			t.Fatalf("%q became %q", text, got)
		}
		if utf8.ValidString(text) && len(text) <= maxLabelBytes && got != text {
			t.Fatalf("%q became %q", text, got)
		}
		if again := label(got); again != got {
			t.Fatalf("%q became %q", got, again)
		}
	})
}

func TestReloadKeepsCountsOfRulesThatStay(t *testing.T) {
	m := newMetrics(t)
	old := []*ratelimit.Rule{newRule("edge", "stays"), newRule("edge", "goes")}
	old[0].DetailedMetric = true
	for _, rule := range old {
		m.Decided(rule, entries("user", "ann"), ratelimit.OutcomeAllowed, 1)
	}
	fresh := newRule("edge", "stays")
	fresh.DetailedMetric = true
	m.RulesInForce([]*ratelimit.Rule{fresh}, "abc")
	m.Decided(fresh, entries("user", "ann"), ratelimit.OutcomeAllowed, 1)
	expect(t, m, "weir_hits_total", `{domain="edge",rule="stays",value="user=ann"} 2`)

	plain := newRule("edge", "stays") // shows values no more
	m.RulesInForce([]*ratelimit.Rule{plain}, "abc")
	m.Decided(plain, entries("user", "ann"), ratelimit.OutcomeAllowed, 1)
	expect(t, m, "weir_hits_total", `{domain="edge",rule="stays",value=""} 1`)
}

// A thousand reloads with other names, rules of old tables still deciding, clients that send other values each time: what a
// scrape shows stays bounded, and no old rule is kept alive.
func TestLabelSetsStayBoundedOverReloads(t *testing.T) {
	m := NewMetrics(MetricsOptions{MaxRules: 20, MaxValues: 5})
	var current sync.Map
	table := func(generation int) []*ratelimit.Rule {
		rules := make([]*ratelimit.Rule, 10)
		for i := range rules {
			rules[i] = newRule("edge", fmt.Sprintf("r%d-%d", generation, i))
			rules[i].DetailedMetric = i == 0
		}
		rules[9].Name = "constant"
		rules[9].DetailedMetric = true
		return rules
	}
	current.Store("rules", table(0))
	stop := make(chan struct{})
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				loaded, _ := current.Load("rules")
				for _, rule := range loaded.([]*ratelimit.Rule) {
					m.Decided(rule, entries("user", strconv.Itoa(worker*1_000_000+i)), ratelimit.OutcomeAllowed, 1)
				}
			}
		})
	}
	for generation := range 1000 {
		rules := table(generation + 1)
		current.Store("rules", rules)
		m.RulesInForce(rules, "abc")
		if generation%100 == 0 {
			if n := len(scrape(t, m, "weir_hits_total")); n > (20+3)*(1+5+1) {
				t.Fatalf("%d series after %d reloads", n, generation)
			}
		}
	}
	close(stop)
	group.Wait()
	rules := table(2000)
	m.RulesInForce(rules, "abc")
	kept := 0
	m.decisions.byRule.Range(func(any, any) bool { kept++; return true })
	if kept != 0 {
		t.Errorf("%d rules of old tables are kept", kept)
	}
	samples := scrape(t, m, "weir_hits_total")
	for _, sample := range samples {
		if !strings.Contains(sample, `rule="constant"`) && !strings.Contains(sample, `rule="other"`) {
			t.Errorf("a rule that went away is shown: %s", sample)
		}
	}
	if len(samples) > 1+5+1+1 {
		t.Errorf("the constant rule has %d series: %v", len(samples), samples)
	}
}

func TestConcurrentDecisionsAreAllCounted(t *testing.T) {
	m := newMetrics(t)
	rule := newRule("edge", "r")
	rule.DetailedMetric = true
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 1000 {
				m.Decided(rule, entries("user", strconv.Itoa(i%2)), ratelimit.OutcomeAllowed, 1)
			}
		})
	}
	group.Wait()
	expect(t, m, "weir_hits_total", `{domain="edge",rule="r",value="user=0"} 4000`, `{domain="edge",rule="r",value="user=1"} 4000`)
}

func TestDecidedAllocatesNothing(t *testing.T) {
	m := newMetrics(t)
	plain, detailed := newRule("edge", "plain"), newRule("edge", "detailed")
	detailed.DetailedMetric = true
	user, invalid := entries("user", "ann", "path", "/api/v1/orders"), entries("user", "\xff\xfe")
	many := make([][]ratelimit.Entry, 10)
	for i := range many {
		many[i] = entries("user", strconv.Itoa(i))
	}
	for name, decide := range map[string]func(){
		"plain":     func() { m.Decided(plain, user, ratelimit.OutcomeAllowed, 1) },
		"unmatched": func() { m.Decided(nil, user, ratelimit.OutcomeNone, 1) },
		"detailed":  func() { m.Decided(detailed, user, ratelimit.OutcomeAllowed, 1) },
		"invalid":   func() { m.Decided(detailed, invalid, ratelimit.OutcomeAllowed, 1) },
		"beyond the cap": func() {
			for _, one := range many {
				m.Decided(detailed, one, ratelimit.OutcomeAllowed, 1)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, decide); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkDecided(b *testing.B) {
	plain, detailed := newRule("edge", "plain"), newRule("edge", "detailed")
	detailed.DetailedMetric = true
	user := entries("user", "ann")
	for name, rule := range map[string]*ratelimit.Rule{"plain": plain, "detailed": detailed} {
		b.Run(name, func(b *testing.B) {
			m := newMetrics(b)
			b.ReportAllocs()
			for b.Loop() {
				m.Decided(rule, user, ratelimit.OutcomeAllowed, 1)
			}
		})
	}
	b.Run("of 100000 rules", func(b *testing.B) {
		m := NewMetrics(MetricsOptions{MaxRules: 100_000})
		rules := make([]*ratelimit.Rule, 100_000)
		for i := range rules {
			rules[i] = newRule("edge", strconv.Itoa(i))
			m.Decided(rules[i], user, ratelimit.OutcomeAllowed, 1)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			m.Decided(rules[i%len(rules)], user, ratelimit.OutcomeAllowed, 1)
			i += 7919
		}
	})
}

func BenchmarkRulesInForce(b *testing.B) {
	m := NewMetrics(MetricsOptions{})
	rules := make([]*ratelimit.Rule, 100_000)
	for i := range rules {
		rules[i] = newRule("edge", strconv.Itoa(i))
		m.Decided(rules[i], nil, ratelimit.OutcomeAllowed, 1)
	}
	for b.Loop() {
		m.RulesInForce(rules, "abc")
	}
}
