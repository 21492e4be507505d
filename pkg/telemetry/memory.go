package telemetry

import "github.com/prometheus/client_golang/prometheus"

// MemoryStats are the figures of a store in this process.
type MemoryStats struct {
	Keys      int    // counters held
	MaxKeys   int    // the most it may hold
	Evictions uint64 // counters forgotten, since the start, to make room for others
}

// MemoryStore shows the figures of a store, asked for at each scrape. use says what for: "main" or "local", the fallback's.
// It must be called at most once for each use.
func (m *Metrics) MemoryStore(use string, stats func() MemoryStats) {
	labels := prometheus.Labels{"use": use}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "memory_keys", ConstLabels: labels,
			Help: "Counters held in memory.",
		}, func() float64 { return float64(stats().Keys) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "memory_max_keys", ConstLabels: labels,
			Help: "The most counters that may be held in memory.",
		}, func() float64 { return float64(stats().MaxKeys) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: namespace, Name: "memory_evictions_total", ConstLabels: labels,
			Help: "Counters that were forgotten to make room for others: while it rises, limits may admit too much.",
		}, func() float64 { return float64(stats().Evictions) }),
	)
}
