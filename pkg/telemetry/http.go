package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

type httpMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newHTTPMetrics(registry prometheus.Registerer) httpMetrics {
	m := httpMetrics{
		prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "http_requests_total",
			Help: "HTTP requests that have been answered, by handler, method and status code.",
		}, []string{"handler", "method", "code"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "http_request_duration_seconds",
			Help:    "Time to answer an HTTP request, by handler.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
		}, []string{"handler"}),
	}
	registry.MustRegister(m.requests, m.duration)
	return m
}

// HTTP counts and measures the requests of a handler, and turns its panic into one answer with status 500, a metric and a
// log line. name is a constant of the code.
func (m *Metrics) HTTP(name string, logger *slog.Logger, next http.Handler) http.Handler {
	labels := prometheus.Labels{"handler": name}
	counted := promhttp.InstrumentHandlerCounter(m.http.requests.MustCurryWith(labels), m.recovering(logger, next))
	return promhttp.InstrumentHandlerDuration(m.http.duration.MustCurryWith(labels), counted)
}

func (m *Metrics) recovering(logger *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answer{ResponseWriter: w}
		defer func() {
			value := recover()
			if value == nil {
				return
			}
			if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(value) // the handler cuts the connection on purpose
			}
			m.Panicked("http")
			logger.ErrorContext(r.Context(), "an HTTP handler panicked",
				"method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			if answer.begun {
				panic(http.ErrAbortHandler) // the client must not take half an answer for a whole one
			}
			http.Error(w, "internal error", http.StatusInternalServerError)
		}()
		next.ServeHTTP(answer, r)
	})
}

// answer knows whether it has begun.
type answer struct {
	http.ResponseWriter
	begun bool
}

func (a *answer) WriteHeader(status int) {
	a.begun = a.begun || status >= http.StatusOK // others are on the way to one
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(p)
}

// Flush sends what was written, for handlers that look for an http.Flusher.
func (a *answer) Flush() {
	a.begun = true
	_ = http.NewResponseController(a.ResponseWriter).Flush() // a connection that cannot is flushed at the end
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
