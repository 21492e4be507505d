package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// maxRules bounds how many rules have series of their own; further ones share the label "other".
const maxRules = 1000

// decisions counts what the engines of this process decide, as weir's server does. Decisions of a weir server are in its own
// metrics.
type decisions struct {
	total *prometheus.CounterVec

	mu    sync.RWMutex
	known map[[2]string][]prometheus.Counter // of a domain and a rule, by outcome
}

var _ engine.Recorder = (*decisions)(nil)

func newDecisions() *decisions {
	return &decisions{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "decisions_total",
			Help: "Decisions about descriptors by engines in this process, by the rule that made them (config: a limit of the plugin's config) and by how they ended.",
		}, []string{"domain", "rule", "outcome"}),
		known: make(map[[2]string][]prometheus.Counter),
	}
}

// Decided implements engine.Recorder.
func (d *decisions) Decided(_ string, _ []ratelimit.Entry, status *engine.Status) {
	domain, rule := "", "unmatched"
	switch {
	case status.Rule != nil:
		domain, rule = status.Rule.Domain, status.Rule.Label()
	case status.Override:
		rule = "config"
	}
	d.counters(domain, rule)[status.Outcome].Inc()
}

// UnknownDomain implements engine.Recorder.
func (d *decisions) UnknownDomain(string, int) {
	d.counters("unknown", "")[ratelimit.OutcomeNone].Inc()
}

// Answered implements engine.Recorder.
func (d *decisions) Answered(*engine.Decision) {}

func (d *decisions) counters(domain, rule string) []prometheus.Counter {
	key := [2]string{domain, rule}
	d.mu.RLock()
	counters, ok := d.known[key]
	d.mu.RUnlock()
	if ok {
		return counters
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if counters, ok := d.known[key]; ok {
		return counters
	}
	if len(d.known) >= maxRules {
		key = [2]string{"other", "other"}
		if counters, ok := d.known[key]; ok {
			return counters
		}
	}
	// Cloned: a rule's strings may be parts of a whole file.
	key[0], key[1] = strings.Clone(key[0]), strings.Clone(key[1])
	for _, outcome := range ratelimit.Outcomes() {
		counters = append(counters, d.total.WithLabelValues(strings.ToValidUTF8(key[0], "\uFFFD"), strings.ToValidUTF8(key[1], "\uFFFD"), outcome.String()))
	}
	d.known[key] = counters
	return counters
}
