// Package metrics shows Prometheus what the plugin's process does, on a listener that is off unless it is asked for.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirhq/weir/kongplugin/internal/access"
)

const namespace = "weir"

// buckets are those of a decision, in seconds: from an engine in this process to a server that hangs until the deadline.
var buckets = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

// Metrics are those of one process. All methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	modes    map[string]*modeMetrics
	*decisions
}

var _ access.Recorder = (*Metrics)(nil)

type modeMetrics struct {
	results []prometheus.Counter // by access.Result
	took    prometheus.Observer
}

// New returns the metrics of a process that has done nothing yet.
func New(version string) *Metrics {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: "kong", Name: "requests_total",
		Help: "Requests that Kong asked about, by what became of them: passed, limited, dry_run, skipped, fault, broken.",
	}, []string{"mode", "result"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: "kong", Name: "decision_duration_seconds", Buckets: buckets,
		Help: "Time from Kong's event to the decision, Kong's answers to questions included.",
	}, []string{"mode"})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info",
		Help: "Always 1; the labels say what the binary was made from.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m := &Metrics{registry: registry, modes: make(map[string]*modeMetrics), decisions: newDecisions()}
	for _, mode := range []string{"grpc", "embedded"} {
		each := &modeMetrics{took: took.WithLabelValues(mode)}
		for _, result := range access.Results() {
			each.results = append(each.results, requests.WithLabelValues(mode, result.String()))
		}
		m.modes[mode] = each
	}
	registry.MustRegister(requests, took, build, m.total,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handled implements access.Recorder.
func (m *Metrics) Handled(mode string, result access.Result, took time.Duration) {
	if each := m.modes[mode]; each != nil {
		each.results[result].Inc()
		each.took.Observe(took.Seconds())
	}
}

// Gauge adds one that is read at each scrape. name follows weir_kong_.
func (m *Metrics) Gauge(name, help string, read func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "kong", Name: name, Help: help,
	}, func() float64 { return float64(read()) }))
}

// The bounds of a scrape.
const (
	maxScrapes     = 4
	scrapeTimeout  = 10 * time.Second
	maxHeaderBytes = 16 << 10
)

// retry is the pause between two tries to listen.
const retry = time.Second

// Serve answers GET /metrics until ctx ends. listen opens the listener. It is called again while it fails, because `kong reload`
// starts a process before the one before it ends, which has the address until then.
func (m *Metrics) Serve(ctx context.Context, listen func(context.Context) (net.Listener, error), logger *slog.Logger) {
	listener, err := listen(ctx)
	for told := false; err != nil; listener, err = listen(ctx) {
		if !told {
			logger.WarnContext(ctx, "metrics are not served yet, trying on", "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
	}))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: scrapeTimeout, ReadTimeout: scrapeTimeout, WriteTimeout: 2 * scrapeTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	logger.InfoContext(ctx, "serving metrics", "address", listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		logger.ErrorContext(ctx, "metrics are not served any more", "error", fmt.Errorf("%s: %w", listener.Addr(), err))
	}
}
