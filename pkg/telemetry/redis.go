package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PoolStats are the figures of a pool of connections. The counters are since the start.
type PoolStats struct {
	Open, Idle      int           // connections
	Hits, Misses    uint64        // a free connection was found, or had to be opened
	Timeouts        uint64        // no connection became free in time
	Stale           uint64        // connections that were removed
	Waits           uint64        // a connection had to be waited for
	WaitingDuration time.Duration // the sum of these waits
}

// RedisPool shows the figures of the pool of connections to Redis, asked for once at each scrape. It must be called at most
// once.
func (m *Metrics) RedisPool(stats func() PoolStats) { m.registry.MustRegister(poolCollector(stats)) }

type poolCollector func() PoolStats

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_redis_pool_"+name, help, nil, nil)
}

var (
	poolOpen     = poolDesc("connections", "Connections to Redis, idle ones included.")
	poolIdle     = poolDesc("idle_connections", "Connections to Redis that nobody uses.")
	poolHits     = poolDesc("hits_total", "Times that a free connection was found.")
	poolMisses   = poolDesc("misses_total", "Times that no free connection was found.")
	poolTimeouts = poolDesc("timeouts_total", "Times that no connection became free in time.")
	poolStale    = poolDesc("stale_connections_total", "Connections that were removed because they were too old or broken.")
	poolWaits    = poolDesc("waits_total", "Times that a connection had to be waited for.")
	poolWaiting  = poolDesc("wait_seconds_total", "Time spent waiting for a connection.")
)

// Describe implements prometheus.Collector.
func (poolCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{poolOpen, poolIdle, poolHits, poolMisses, poolTimeouts, poolStale, poolWaits, poolWaiting} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (c poolCollector) Collect(metrics chan<- prometheus.Metric) {
	stats := c()
	show := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64) {
		metrics <- prometheus.MustNewConstMetric(desc, kind, value)
	}
	show(poolOpen, prometheus.GaugeValue, float64(stats.Open))
	show(poolIdle, prometheus.GaugeValue, float64(stats.Idle))
	show(poolHits, prometheus.CounterValue, float64(stats.Hits))
	show(poolMisses, prometheus.CounterValue, float64(stats.Misses))
	show(poolTimeouts, prometheus.CounterValue, float64(stats.Timeouts))
	show(poolStale, prometheus.CounterValue, float64(stats.Stale))
	show(poolWaits, prometheus.CounterValue, float64(stats.Waits))
	show(poolWaiting, prometheus.CounterValue, stats.WaitingDuration.Seconds())
}
