package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type storeMetrics struct {
	answered, failed prometheus.Observer
	failedCharges    prometheus.Counter
}

func newStoreMetrics(registry prometheus.Registerer) storeMetrics {
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "store_request_duration_seconds",
		Help:    "Time of calls to the guarded store, by result: error if it could decide nothing of the call.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}, []string{"result"})
	failedCharges := prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "store_failed_charges_total",
		Help: "Charges that the guarded store was asked for and could not decide.",
	})
	registry.MustRegister(duration, failedCharges)
	return storeMetrics{duration.WithLabelValues("ok"), duration.WithLabelValues("error"), failedCharges}
}

// StoreTook counts one call of the guarded store: how long it took, and how many of its charges failed.
func (m *Metrics) StoreTook(elapsed time.Duration, failed, charges int) {
	observer := m.store.answered
	if failed > 0 {
		m.store.failedCharges.Add(float64(failed))
		if failed == charges {
			observer = m.store.failed
		}
	}
	observer.Observe(elapsed.Seconds())
}

type breakerMetrics struct {
	states      *prometheus.GaugeVec
	transitions *prometheus.CounterVec
}

// The breaker's states as they are labelled.
var breakerStates = []string{"closed", "open", "half_open"}

func newBreakerMetrics(registry prometheus.Registerer) breakerMetrics {
	b := breakerMetrics{
		prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "store_breaker_state",
			Help: "1 for the state in which the circuit breaker of the store is, 0 for the others.",
		}, []string{"state"}),
		prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "store_breaker_transitions_total",
			Help: "Changes of the circuit breaker's state, by the new state.",
		}, []string{"state"}),
	}
	for _, state := range breakerStates {
		b.transitions.WithLabelValues(state)
	}
	b.set("closed")
	registry.MustRegister(b.states, b.transitions)
	return b
}

func (b *breakerMetrics) set(state string) {
	for _, known := range breakerStates {
		value := 0.0
		if known == state {
			value = 1
		}
		b.states.WithLabelValues(known).Set(value)
	}
}

// BreakerChanged tells the new state of the store's circuit breaker: "closed", "open" or "half_open".
func (m *Metrics) BreakerChanged(state string) {
	m.breaker.set(state)
	m.breaker.transitions.WithLabelValues(state).Inc()
}
