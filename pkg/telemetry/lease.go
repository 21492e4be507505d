package telemetry

import "github.com/prometheus/client_golang/prometheus"

// LeaseStats are the figures of the leases of busy counters.
type LeaseStats struct {
	Counters int   // busy counters that are cared for
	Leases   int   // of these, those that hold hits
	Held     int64 // hits that are held
	// Since the start: hits that were taken ahead, those of them that were handed out, and those that were lost.
	Taken, Spent, Lost uint64
	Listening          bool // resets by other processes are heard of; if not nothing is taken ahead
}

// Leases shows the figures of the leases, asked for at each scrape. It must be called at most once.
func (m *Metrics) Leases(stats func() LeaseStats) { m.registry.MustRegister(newLeases(stats)) }

// leases asks for all figures at once, because that looks at every lease.
type leases struct {
	stats                                               func() LeaseStats
	counters, held, heldHits, taken, spent, lost, heard *prometheus.Desc
}

func newLeases(stats func() LeaseStats) *leases {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "lease", name), help, nil, nil)
	}
	return &leases{
		stats:    stats,
		counters: desc("counters", "Counters busy enough for a lease."),
		held:     desc("leases", "Counters of which hits were taken ahead and are not spent yet."),
		heldHits: desc("held_hits", "Hits that were taken ahead and are not spent yet."),
		taken:    desc("taken_hits_total", "Hits that were taken ahead."),
		spent:    desc("spent_hits_total", "Hits that were allowed out of a lease, without asking the store."),
		lost:     desc("lost_hits_total", "Hits that were taken ahead and not spent in time."),
		heard:    desc("listening", "1 while resets by other processes are heard of, 0 while nothing is taken ahead because they may be missed."),
	}
}

// Describe implements prometheus.Collector.
func (l *leases) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, to) }

// Collect implements prometheus.Collector.
func (l *leases) Collect(to chan<- prometheus.Metric) {
	stats := l.stats()
	heard := 0.0
	if stats.Listening {
		heard = 1
	}
	for _, m := range []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value float64
	}{
		{l.counters, prometheus.GaugeValue, float64(stats.Counters)},
		{l.held, prometheus.GaugeValue, float64(stats.Leases)},
		{l.heldHits, prometheus.GaugeValue, float64(stats.Held)},
		{l.taken, prometheus.CounterValue, float64(stats.Taken)},
		{l.spent, prometheus.CounterValue, float64(stats.Spent)},
		{l.lost, prometheus.CounterValue, float64(stats.Lost)},
		{l.heard, prometheus.GaugeValue, heard},
	} {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value)
	}
}
