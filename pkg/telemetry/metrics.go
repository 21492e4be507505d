package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
)

const namespace = "weir"

// Defaults of MetricsOptions.
const (
	DefaultMaxRules  = 10_000
	DefaultMaxValues = 100
)

// MetricsOptions bound the labels and describe the binary. The zero value is usable, but for the binary's description.
type MetricsOptions struct {
	// MaxRules is how many rules get labels of their own, in the order of their first use; the others share the label
	// "other". 0: DefaultMaxRules.
	MaxRules int
	// MaxValues is how many run-time values of one rule get labels of their own, where a rule asks for them; the others
	// share the value "other". 0: none do.
	MaxValues int
	// Called, if not nil, is told of each unary gRPC call that the interceptor sees, when it has ended.
	Called func(method string, code codes.Code, elapsed time.Duration)
	// Version, Revision and GoVersion are the labels of weir_build_info.
	Version, Revision, GoVersion string
}

// Metrics are the metrics of one process, in a registry of their own. All methods are safe for concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	called    func(method string, code codes.Code, elapsed time.Duration)
	decisions *decisions
	store     storeMetrics
	breaker   breakerMetrics
	rules     ruleMetrics
	// controlPlane is that of the rules.
	controlPlane controlPlaneMetrics
	grpc         *grpcMetrics
	http         httpMetrics
	panics       *prometheus.CounterVec
	expiry       *prometheus.GaugeVec
}

// NewMetrics returns the metrics of a process that has done nothing yet.
func NewMetrics(options MetricsOptions) *Metrics {
	if options.MaxRules == 0 {
		options.MaxRules = DefaultMaxRules
	}
	registry := prometheus.NewRegistry()
	m := &Metrics{
		registry:     registry,
		called:       options.Called,
		decisions:    newDecisions(options.MaxRules, options.MaxValues),
		store:        newStoreMetrics(registry),
		breaker:      newBreakerMetrics(registry),
		rules:        newRuleMetrics(registry),
		controlPlane: newControlPlaneMetrics(registry),
		grpc:         newGRPCMetrics(registry),
		http:         newHTTPMetrics(registry),
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "panics_total",
			Help: "Panics that were caught, by where; each is one failed call and a bug.",
		}, []string{"where"}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "tls_certificate_expiry_timestamp_seconds",
			Help: "When the certificate in use expires, by its use.",
		}, []string{"use"}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info",
		Help: "Always 1; the labels say what the binary was made from.",
	}, []string{"version", "revision", "goversion"})
	build.WithLabelValues(label(options.Version), label(options.Revision), label(options.GoVersion)).Set(1)
	registry.MustRegister(m.decisions, m.panics, m.expiry, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Registerer lets a part of the process add metrics of its own.
func (m *Metrics) Registerer() prometheus.Registerer { return m.registry }

// The bounds of one scrape.
const (
	maxScrapes    = 4
	scrapeTimeout = 30 * time.Second
)

// Handler serves the metrics in the text, OpenMetrics or protobuf form, as the client asks.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry:            m.registry,
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
		// A collector that fails must not hide what the others say.
		ErrorHandling: promhttp.ContinueOnError,
	})
}

// Panicked counts a panic that was caught. where is a constant of the code, such as "grpc".
func (m *Metrics) Panicked(where string) { m.panics.WithLabelValues(where).Inc() }

// CertificateLoaded tells when the certificate in use expires. use is a constant of the code, such as "server".
func (m *Metrics) CertificateLoaded(use string, notAfter time.Time) {
	m.expiry.WithLabelValues(use).Set(float64(notAfter.Unix()))
}
