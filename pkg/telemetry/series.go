package telemetry

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// outcomes is the number of ratelimit's outcomes; a test compares.
const outcomes = 7

// outcomeCounts counts decisions by outcome. It fills one cache line.
type outcomeCounts struct {
	byOutcome [outcomes]atomic.Uint64
	hits      atomic.Uint64
}

func (c *outcomeCounts) add(outcome ratelimit.Outcome, cost int64) {
	if int(outcome) < outcomes {
		c.byOutcome[outcome].Add(1)
	}
	if cost > 0 {
		c.hits.Add(uint64(cost))
	}
}

// ruleSeries are the counts of all rules that share a name, and of their run-time values.
type ruleSeries struct {
	name   ruleName
	found  uint64 // under decisions.mu: the generation in which a rule was last found to have it
	counts outcomeCounts

	mu     sync.RWMutex
	values map[string]*outcomeCounts // by label; nil until one is used
}

// showsValues reports whether a rule wants run-time values in its metrics.
func showsValues(rule *ratelimit.Rule) bool {
	return rule.DetailedMetric || slices.ContainsFunc(rule.Match, func(m ratelimit.EntryMatch) bool { return m.ValueToMetric })
}

// value returns the counts of the entries' values, or those of "other" if so many values have counts already.
func (s *ruleSeries) value(rule *ratelimit.Rule, entries []ratelimit.Entry, most int) *outcomeCounts {
	var buffer [maxLabelBytes]byte
	text := appendValues(buffer[:0], rule, entries)
	s.mu.RLock()
	found := s.values[string(text)]
	rest := s.values[other]
	full := len(s.values) > most // one of them is other
	s.mu.RUnlock()
	switch {
	case found != nil:
		return found
	case full:
		return rest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]*outcomeCounts{other: {}}
	}
	if found := s.values[string(text)]; found != nil {
		return found
	}
	if len(s.values) > most {
		return s.values[other]
	}
	counts := &outcomeCounts{}
	s.values[string(text)] = counts
	return counts
}

// appendValues appends the label of the entries that the rule shows: "key=value|key=value".
func appendValues(to []byte, rule *ratelimit.Rule, entries []ratelimit.Entry) []byte {
	for i := range entries {
		if !rule.DetailedMetric && (i >= len(rule.Match) || !rule.Match[i].ValueToMetric) {
			continue
		}
		if len(to) > 0 {
			to = appendLabel(to, "|")
		}
		to = appendLabel(to, entries[i].Key)
		to = appendLabel(to, "=")
		to = appendLabel(to, entries[i].Value)
	}
	return to
}

// dropValues forgets all values: no rule of this name shows them any more.
func (s *ruleSeries) dropValues() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = nil
}

func (s *ruleSeries) each(visit func(value string, counts *outcomeCounts)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for value, counts := range s.values {
		visit(value, counts)
	}
}
