package stats

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
)

// collector shows statistics to Prometheus. What it shows depends on the rules, so it describes nothing beforehand.
type collector struct {
	stats    *Stats
	mapping  *Mapping
	duration prometheus.Collector // nil: not shown

	mu      sync.Mutex
	targets map[string]*sum // by the statistic's name; forgotten when the rules change much
}

// sum is what statistics that are mapped to one name and the same labels add up to.
type sum struct {
	target
	desc   *prometheus.Desc
	values []string
	id     string
}

// rememberTargets bounds the names whose mapping is remembered.
const rememberTargets = 1_000_000

// Collector returns what shows the statistics under the names that the mapping gives them, and makes the durations of calls
// one of them. Call it once.
func (s *Stats) Collector(mapping *Mapping) prometheus.Collector {
	c := &collector{stats: s, mapping: mapping, targets: make(map[string]*sum)}
	if observer, shown := mapping.observer(serverPrefix + "response_time"); shown != nil {
		c.duration = shown
		s.durations.observer.Store(&observer)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	totals := make(map[string]float64)
	sums := make(map[string]*sum)
	add := func(name string, value uint64) {
		to := c.target(name)
		if to.desc == nil || to.unmapped && value == 0 {
			return
		}
		sums[to.id] = to
		totals[to.id] += float64(value) * to.scale
	}
	for _, each := range c.stats.service.counters() {
		add(each.name, each.counter.Load())
	}
	all, unknown := c.stats.series()
	for _, each := range all {
		if !each.used() {
			continue
		}
		for i := range each.counts {
			add(rulePrefix+each.name+"."+counterNames[i], each.counts[i].Load())
		}
	}
	for _, domain := range unknown {
		add(rulePrefix+domain.name+".domain_not_found", domain.count.Load())
	}
	for id, to := range sums {
		if metric, err := prometheus.NewConstMetric(to.desc, prometheus.CounterValue, totals[id], to.values...); err == nil {
			metrics <- metric
		}
	}
	if c.duration != nil {
		c.duration.Collect(metrics)
	}
}

// target finds where a counter is added up. Its desc is nil if the mapping drops it.
func (c *collector) target(name string) *sum {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.targets[name]; ok {
		return known
	}
	if len(c.targets) >= rememberTargets {
		clear(c.targets)
	}
	found := &sum{}
	found.target, _ = c.mapping.target(name, mapper.MetricTypeCounter)
	if found.name != "" {
		labels := make([]string, 0, len(found.labels))
		for label := range found.labels {
			labels = append(labels, label)
		}
		slices.Sort(labels)
		for _, label := range labels {
			found.values = append(found.values, found.labels[label])
		}
		found.desc = prometheus.NewDesc(found.name, found.help, labels, nil)
		found.id = strings.Join(append([]string{found.name}, append(labels, found.values...)...), "\xff")
	}
	c.targets[name] = found
	return found
}
