package app

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	grpcstats "google.golang.org/grpc/stats"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/k1s0"
	"github.com/weirhq/weir/pkg/telemetry"
)

// setUpTracing starts sending spans, if the settings ask for it.
func (a *app) setUpTracing() error {
	settings := &a.config.Tracing
	if !settings.Enabled {
		return nil
	}
	tracing, err := telemetry.NewTracing(context.Background(), telemetry.TracingOptions{
		GRPC:         settings.Protocol == config.TracingGRPC,
		ServiceName:  settings.ServiceName,
		Namespace:    settings.ServiceNamespace,
		InstanceID:   settings.ServiceInstanceID,
		Version:      a.Build.Version,
		SamplingRate: settings.SamplingRate,
		Logger:       a.logger.With("component", "tracing"),
	})
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	a.tracing = tracing
	a.cleanup.add(func() {
		if err := tracing.Close(); err != nil {
			a.logger.Warn("the last spans could not be sent", "error", err)
		}
	})
	return nil
}

// tracer makes the spans of Envoy's calls. nil: none are made.
func (a *app) tracer() trace.Tracer {
	if a.tracing == nil {
		return nil
	}
	return a.tracing.Tracer()
}

// traceHeader is the field of a call's header that the fast listener reads for tracing.
func (a *app) traceHeader() string {
	if a.tracing == nil {
		return ""
	}
	return envoy.TraceHeader
}

// traceGRPC has spans made for the calls of the k1s0 API. Envoy's have their own, and health checks none.
func (a *app) traceGRPC(options []grpc.ServerOption) []grpc.ServerOption {
	if a.tracing == nil {
		return options
	}
	return append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(a.tracing.Provider()),
		otelgrpc.WithPropagators(a.tracing.Propagator()),
		otelgrpc.WithFilter(func(info *grpcstats.RPCTagInfo) bool {
			return strings.HasPrefix(info.FullMethodName, "/"+k1s0.ServiceName+"/")
		}),
	)))
}

// traceHTTP has spans made for the requests of the REST API.
func (a *app) traceHTTP(next http.Handler) http.Handler {
	if a.tracing == nil {
		return next
	}
	return otelhttp.NewHandler(next, "http",
		otelhttp.WithTracerProvider(a.tracing.Provider()),
		otelhttp.WithPropagators(a.tracing.Propagator()),
		otelhttp.WithFilter(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method }), // a path may hold an identifier
	)
}
