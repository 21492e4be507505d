package telemetry

import "github.com/prometheus/client_golang/prometheus"

// DenyCacheStats are the figures of the cache of denied counters.
type DenyCacheStats struct {
	Entries   int    // counters remembered
	Denied    uint64 // charges that it answered, since the start
	Listening bool   // it hears of other processes' refunds and resets; if not it answers nothing
}

// DenyCache shows the figures of the cache, asked for at each scrape. It must be called at most once.
func (m *Metrics) DenyCache(stats func() DenyCacheStats) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "deny_cache_entries",
			Help: "Counters that are known to be over their limit, so that the store is not asked about them.",
		}, func() float64 { return float64(stats().Entries) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: namespace, Name: "deny_cache_denied_total",
			Help: "Charges denied without asking the store.",
		}, func() float64 { return float64(stats().Denied) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "deny_cache_listening",
			Help: "1 while refunds and resets by other processes are heard of, 0 while the cache is off because they may be missed.",
		}, func() float64 {
			if stats().Listening {
				return 1
			}
			return 0
		}),
	)
}
