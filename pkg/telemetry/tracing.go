package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// TracingOptions say whose spans are sent, and how. Where to, with which certificates, and how many may wait is said by the
// variables OTEL_EXPORTER_OTLP_* and OTEL_BSP_*. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES beat the names here.
type TracingOptions struct {
	// GRPC sends OTLP over gRPC; else it goes over HTTP.
	GRPC bool
	// ServiceName, Namespace, InstanceID and Version describe the process. An empty InstanceID: a random one.
	ServiceName, Namespace, InstanceID, Version string
	// SamplingRate is the part of traces that begin here which is recorded, 0 to 1. A trace that a caller began is recorded if
	// the caller records it.
	SamplingRate float64
	// Logger is told when spans cannot be sent.
	Logger *slog.Logger
}

// Tracing sends spans to a collector. They wait in a queue of bounded length; those that find it full are lost, so that a
// collector that is away is never in the way of a call.
type Tracing struct {
	provider   *sdktrace.TracerProvider
	propagator propagation.TextMapPropagator
}

// tracerName is what the spans are said to be made by.
const tracerName = "github.com/weirhq/weir"

// shutdownTimeout bounds the time for the last spans.
const shutdownTimeout = 5 * time.Second

// NewTracing starts sending spans. It does not wait for the collector. The error is about the options or variables.
func NewTracing(ctx context.Context, options TracingOptions) (*Tracing, error) {
	client := otlptracehttp.NewClient()
	if options.GRPC {
		client = otlptracegrpc.NewClient()
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("OTLP exporter: %w", err)
	}
	if options.InstanceID == "" {
		options.InstanceID = uuid.NewString()
	}
	who := []attribute.KeyValue{semconv.ServiceName(options.ServiceName), semconv.ServiceInstanceID(options.InstanceID)}
	if options.Namespace != "" {
		who = append(who, semconv.ServiceNamespace(options.Namespace))
	}
	if options.Version != "" {
		who = append(who, semconv.ServiceVersion(options.Version))
	}
	described, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(who...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		options.Logger.WarnContext(ctx, "spans cannot be sent", "error", err)
	}))
	return &Tracing{
		provider: sdktrace.NewTracerProvider(
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(options.SamplingRate))),
			sdktrace.WithBatcher(exporter),
			sdktrace.WithResource(described),
		),
		propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
	}, nil
}

// Tracer makes spans.
func (t *Tracing) Tracer() trace.Tracer { return t.provider.Tracer(tracerName) }

// Provider and Propagator are for libraries that make spans.
func (t *Tracing) Provider() trace.TracerProvider { return t.provider }

// Propagator reads W3C trace context and baggage.
func (t *Tracing) Propagator() propagation.TextMapPropagator { return t.propagator }

// Close sends the spans that wait, for a few seconds at most, and stops.
func (t *Tracing) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return t.provider.Shutdown(ctx)
}
