package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// grpcMetrics counts calls. Interceptors rather than a stats.Handler: they see a call once instead of at seven events.
type grpcMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec

	methods atomic.Pointer[map[string]*methodMetrics] // replaced as a whole, under mu
	mu      sync.Mutex
}

// methodMetrics are one method's, found without composing labels.
type methodMetrics struct {
	name     string
	requests *prometheus.CounterVec
	byCode   [codes.Unauthenticated + 1]atomic.Pointer[prometheus.Counter]
	duration prometheus.Observer
}

func newGRPCMetrics(registry prometheus.Registerer) *grpcMetrics {
	m := &grpcMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "grpc_requests_total",
			Help: "gRPC calls that have ended, by method and status code.",
		}, []string{"method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "grpc_request_duration_seconds",
			Help:    "Time from a gRPC call's arrival to its answer; streams left out.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"method"}),
	}
	registry.MustRegister(m.requests, m.duration)
	return m
}

// method returns the metrics of a method that the server has: an unknown one does not come here.
func (g *grpcMetrics) method(name string) *methodMetrics {
	if methods := g.methods.Load(); methods != nil {
		if found, ok := (*methods)[name]; ok {
			return found
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	methods := make(map[string]*methodMetrics)
	if old := g.methods.Load(); old != nil {
		if found, ok := (*old)[name]; ok {
			return found
		}
		maps.Copy(methods, *old)
	}
	added := &methodMetrics{name: label(name), requests: g.requests, duration: g.duration.WithLabelValues(label(name))}
	methods[name] = added
	g.methods.Store(&methods)
	return added
}

func (m *methodMetrics) ended(err error) { m.count(status.Code(err)) }

func (m *methodMetrics) count(code codes.Code) {
	if int(code) >= len(m.byCode) {
		code = codes.Unknown // what a client makes of it
	}
	if counter := m.byCode[code].Load(); counter != nil {
		(*counter).Inc()
		return
	}
	counter := m.requests.WithLabelValues(m.name, code.String())
	m.byCode[code].Store(&counter)
	counter.Inc()
}

// UnaryInterceptor counts calls, measures them, and turns a panic of a handler into one failed call with codes.Internal, a
// metric and a log line.
func (m *Metrics) UnaryInterceptor(logger *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		method := m.grpc.method(info.FullMethod)
		start := time.Now()
		defer func() {
			if value := recover(); value != nil {
				reply, err = nil, m.caught(ctx, logger, info.FullMethod, value)
			}
			elapsed := time.Since(start)
			method.duration.Observe(elapsed.Seconds())
			code := status.Code(err)
			method.count(code)
			if m.called != nil {
				m.called(info.FullMethod, code, elapsed)
			}
		}()
		return handler(ctx, request)
	}
}

// StreamInterceptor is UnaryInterceptor for streams, without their duration.
func (m *Metrics) StreamInterceptor(logger *slog.Logger) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		method := m.grpc.method(info.FullMethod)
		defer func() {
			if value := recover(); value != nil {
				err = m.caught(stream.Context(), logger, info.FullMethod, value)
			}
			method.ended(err)
		}()
		return handler(server, stream)
	}
}

// caught counts and logs a panic. The client is told nothing of its cause.
func (m *Metrics) caught(ctx context.Context, logger *slog.Logger, method string, value any) error {
	m.Panicked("grpc")
	logger.ErrorContext(ctx, "a gRPC handler panicked", "method", method, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}
