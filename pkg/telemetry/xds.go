package telemetry

import "github.com/prometheus/client_golang/prometheus"

type controlPlaneMetrics struct {
	up                prometheus.Gauge
	accepted, refused prometheus.Counter
}

func newControlPlaneMetrics(registry prometheus.Registerer) controlPlaneMetrics {
	up := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "xds_up", Help: "1 while there is a stream from the control plane, 0 if not or if there is no control plane.",
	})
	responses := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "xds_responses_total", Help: "Responses of the control plane by what became of their rules.",
	}, []string{"result"})
	registry.MustRegister(up, responses)
	return controlPlaneMetrics{
		up:       up,
		accepted: responses.WithLabelValues("accepted"),
		refused:  responses.WithLabelValues("refused"),
	}
}

// ControlPlaneUp tells whether there is a stream from the control plane.
func (m *Metrics) ControlPlaneUp(up bool) {
	if up {
		m.controlPlane.up.Set(1)
	} else {
		m.controlPlane.up.Set(0)
	}
}

// ControlPlaneResponse tells of a response of the control plane, and whether its rules are in force.
func (m *Metrics) ControlPlaneResponse(accepted bool) {
	if accepted {
		m.controlPlane.accepted.Inc()
	} else {
		m.controlPlane.refused.Inc()
	}
}
