package telemetry

import (
	"hash/fnv"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/pkg/ratelimit"
)

type ruleMetrics struct {
	succeeded, failed             prometheus.Counter
	successful, time, count, hash prometheus.Gauge
	safeDefault                   prometheus.Gauge
	merged, overridden, storeUp   prometheus.Gauge
	from, fromCount               *prometheus.GaugeVec
}

func newRuleMetrics(registry prometheus.Registerer) ruleMetrics {
	reloads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "rules_reloads_total",
		Help: "Loads of the rules, the first one included, by result.",
	}, []string{"result"})
	registry.MustRegister(reloads)
	stored := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "rules_stored",
		Help: "Rules of the rule store by state: in force (or disabled), or overridden by a rule file.",
	}, []string{"state"})
	registry.MustRegister(stored)
	from := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "rules_source_info",
		Help: "1 for the version of the rules that each source contributes: a hash of files, the revision of the rule store, the version_info of a control plane.",
	}, []string{"source", "version"})
	fromCount := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "rules_source_rules", Help: "Rules that each source has, those included that another source overrides.",
	}, []string{"source"})
	registry.MustRegister(from, fromCount)
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
		registry.MustRegister(g)
		return g
	}
	return ruleMetrics{
		from: from, fromCount: fromCount,
		succeeded:   reloads.WithLabelValues("success"),
		failed:      reloads.WithLabelValues("failure"),
		successful:  gauge("rules_last_reload_successful", "1 if the last load of the rules was good, 0 if it was refused and the rules before it are in force."),
		time:        gauge("rules_last_reload_success_timestamp_seconds", "When rules were last loaded."),
		count:       gauge("rules_loaded", "Rules in force."),
		hash:        gauge("rules_hash", "The first 48 bits of a hash of the rules in force: replicas with the same rules show the same number."),
		safeDefault: gauge("rules_safe_default", "1 while there are no valid rules and the default limit applies to everything."),
		merged:      stored.WithLabelValues("merged"),
		overridden:  stored.WithLabelValues("overridden"),
		storeUp:     gauge("rule_store_up", "1 if the rule store answered when it was last looked at, 0 if not or if there is none."),
	}
}

// RulesLoaded tells that rule files were loaded without an error.
func (m *Metrics) RulesLoaded() {
	m.rules.succeeded.Inc()
	m.rules.successful.Set(1)
	m.rules.time.SetToCurrentTime()
	m.rules.safeDefault.Set(0)
}

// RulesInForce tells which rules are in force now, and their hash in hexadecimal. Call it once they are: the series of rules
// that are not among them are dropped.
func (m *Metrics) RulesInForce(rules []*ratelimit.Rule, hash string) {
	m.decisions.keep(rules)
	m.rules.count.Set(float64(len(rules)))
	m.rules.hash.Set(hashNumber(hash))
}

// RulesFrom tells which version of its rules a source contributes to those in force, and how many they are.
func (m *Metrics) RulesFrom(source, version string, rules int) {
	m.rules.from.DeletePartialMatch(prometheus.Labels{"source": source})
	m.rules.from.WithLabelValues(source, version).Set(1)
	m.rules.fromCount.WithLabelValues(source).Set(float64(rules))
}

// StoredRules tells how many rules of the rule store are merged with those of files, and how many a file overrides.
func (m *Metrics) StoredRules(merged, overridden int) {
	m.rules.merged.Set(float64(merged))
	m.rules.overridden.Set(float64(overridden))
}

// RuleStoreUp tells whether the rule store answers.
func (m *Metrics) RuleStoreUp(up bool) {
	if up {
		m.rules.storeUp.Set(1)
	} else {
		m.rules.storeUp.Set(0)
	}
}

// RulesRefused tells that rules were not loaded because of their errors. Those before them stay in force.
func (m *Metrics) RulesRefused() {
	m.rules.failed.Inc()
	m.rules.successful.Set(0)
}

// SafeDefault tells that there are no rules in force and the default limit applies to everything, until rules are loaded.
func (m *Metrics) SafeDefault() { m.rules.safeDefault.Set(1) }

// hashBits is how much of a hash a float64 holds exactly, in whole hexadecimal digits.
const hashBits = 48

func hashNumber(hash string) float64 {
	const digits = hashBits / 4
	if len(hash) >= digits {
		if n, err := strconv.ParseUint(hash[:digits], 16, hashBits); err == nil {
			return float64(n)
		}
	}
	short := fnv.New64a()
	short.Write([]byte(hash))
	return float64(short.Sum64() >> (64 - hashBits))
}
