package telemetry

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// other is the label of whatever is beyond a cap.
const other = "other"

// The series of decisions that no rule made.
var (
	unmatchedName = ruleName{"", "unmatched"} // nothing matched in a known domain
	unknownName   = ruleName{"unknown", ""}   // no rules for the request's domain
	otherName     = ruleName{other, other}    // rules beyond the cap
)

// decisions counts decisions by rule. It is a prometheus.Collector over counters of its own: a decision adds to an atomic
// integer that it finds by the rule's address, and dropping a rule's series is dropping a map's entry.
type decisions struct {
	maxRules, maxValues int

	unmatched, unknown, other *ruleSeries

	// byRule finds the series of a rule. Rules that are not in force any more are taken out, so that it keeps none of them
	// alive. *ratelimit.Rule to *ruleSeries.
	byRule     sync.Map
	mu         sync.Mutex
	byName     map[ruleName]*ruleSeries // under mu; those that the scrape shows
	generation uint64                   // under mu; counts the changes of rules
}

type ruleName struct{ domain, rule string }

var (
	decisionsDesc = prometheus.NewDesc(namespace+"_decisions_total",
		"Decisions about descriptors, by the rule that made them and by how they ended. value is set for rules that ask for it.",
		[]string{"domain", "rule", "value", "outcome"}, nil)
	hitsDesc = prometheus.NewDesc(namespace+"_hits_total",
		"Sum of the costs that were asked for, allowed or not; looks and refunds left out.",
		[]string{"domain", "rule", "value"}, nil)
)

func newDecisions(maxRules, maxValues int) *decisions {
	d := &decisions{
		maxRules: maxRules, maxValues: maxValues,
		unmatched: &ruleSeries{name: unmatchedName}, unknown: &ruleSeries{name: unknownName}, other: &ruleSeries{name: otherName},
	}
	d.byName = d.fixed()
	return d
}

const fixedSeries = 3

// fixed are the series that never go away. A rule that has the name of one shares it.
func (d *decisions) fixed() map[ruleName]*ruleSeries {
	fixed := make(map[ruleName]*ruleSeries, fixedSeries)
	for _, series := range []*ruleSeries{d.unmatched, d.unknown, d.other} {
		fixed[series.name] = series
	}
	return fixed
}

// Decided counts one decision about one descriptor; rule is nil if none matched. It allocates only at the first use of a
// rule or value.
func (m *Metrics) Decided(rule *ratelimit.Rule, entries []ratelimit.Entry, outcome ratelimit.Outcome, cost int64) {
	series := m.decisions.unmatched
	if rule != nil {
		series = m.decisions.find(rule)
	}
	counts := &series.counts
	if rule != nil && series != m.decisions.other && showsValues(rule) {
		counts = series.value(rule, entries, m.decisions.maxValues)
	}
	counts.add(outcome, cost)
}

// UnknownDomain counts one request whose domain no rule is for.
func (m *Metrics) UnknownDomain() { m.decisions.unknown.counts.add(ratelimit.OutcomeNone, 0) }

func (d *decisions) find(rule *ratelimit.Rule) *ruleSeries {
	if found, ok := d.byRule.Load(rule); ok {
		return found.(*ruleSeries)
	}
	return d.first(rule)
}

// first finds the series for the first decision of a rule since the table is in force.
func (d *decisions) first(rule *ratelimit.Rule) *ruleSeries {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := nameOf(rule)
	series, ok := d.byName[name]
	switch {
	case ok:
	case len(d.byName) < d.maxRules+fixedSeries:
		// Cloned: a rule's strings may be parts of a whole file.
		series = &ruleSeries{name: ruleName{strings.Clone(name.domain), strings.Clone(name.rule)}}
		d.byName[series.name] = series
	default:
		series = d.other
	}
	series.found = d.generation
	d.byRule.Store(rule, series)
	return series
}

// keep drops the series of all rules that are not among rules, those of the table in force. A decision by an older table
// that is still under way may bring one back, until the next time. Decisions are counted meanwhile.
func (d *decisions) keep(rules []*ratelimit.Rule) {
	d.mu.Lock()
	d.generation++
	generation := d.generation
	d.mu.Unlock()

	current := make(map[*ratelimit.Rule]bool, len(rules))
	for _, rule := range rules {
		current[rule] = true
	}
	d.byRule.Range(func(rule, series any) bool {
		if !current[rule.(*ratelimit.Rule)] || series == d.other { // there may be room for it now
			d.byRule.Delete(rule)
		}
		return true
	})
	names := make(map[ruleName]bool, len(rules)) // with whether a rule of the name shows values
	for _, rule := range rules {
		name := nameOf(rule)
		names[name] = names[name] || showsValues(rule)
	}
	fixed := d.fixed()

	d.mu.Lock()
	defer d.mu.Unlock()
	for name, series := range d.byName {
		valued, named := names[name]
		if series.found == generation {
			continue // it has been used since
		}
		if fixed[name] == nil && !named {
			delete(d.byName, name)
		} else if !valued {
			series.dropValues()
		}
	}
}

func nameOf(rule *ratelimit.Rule) ruleName {
	return ruleName{label(rule.Domain), label(rule.Label())}
}

// Describe implements prometheus.Collector.
func (d *decisions) Describe(descs chan<- *prometheus.Desc) {
	descs <- decisionsDesc
	descs <- hitsDesc
}

// Collect implements prometheus.Collector.
func (d *decisions) Collect(metrics chan<- prometheus.Metric) {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.byName))
	d.mu.Unlock()
	for _, series := range all {
		series.counts.collect(metrics, series.name, "")
		series.each(func(value string, counts *outcomeCounts) { counts.collect(metrics, series.name, value) })
	}
}

// alwaysShown are the outcomes that a rule's first decision makes visible together, so that a rate over the rarer one has a
// zero to start from.
var alwaysShown = []ratelimit.Outcome{ratelimit.OutcomeAllowed, ratelimit.OutcomeDenied}

func (c *outcomeCounts) collect(metrics chan<- prometheus.Metric, name ruleName, value string) {
	var seen [outcomes]uint64
	used, decided := false, false
	for i := range seen {
		seen[i] = c.byOutcome[i].Load()
		used = used || seen[i] > 0
		decided = decided || seen[i] > 0 && ratelimit.Outcome(i) != ratelimit.OutcomeNone
	}
	if !used {
		return
	}
	for i, n := range seen {
		outcome := ratelimit.Outcome(i)
		if n > 0 || decided && slices.Contains(alwaysShown, outcome) {
			metrics <- prometheus.MustNewConstMetric(decisionsDesc, prometheus.CounterValue, float64(n),
				name.domain, name.rule, value, outcome.String())
		}
	}
	metrics <- prometheus.MustNewConstMetric(hitsDesc, prometheus.CounterValue, float64(c.hits.Load()), name.domain, name.rule, value)
}
