package envoy

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"

	"github.com/weirhq/weir/pkg/engine"
)

// TraceHeader is the field of a call's header that Call.Traceparent holds.
const TraceHeader = "traceparent"

// maxSpanText bounds what a caller may put into a span, in bytes.
const maxSpanText = 256

// callSpan describes the span of a call.
var callSpan = []trace.SpanStartOption{
	trace.WithSpanKind(trace.SpanKindServer),
	trace.WithAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(MethodPath[1:])),
}

// spans are those of one Serve, one for each call; nil for a call that is not recorded.
type spans struct {
	tracer trace.Tracer
	calls  []trace.Span
}

// serveTraced is Serve with a span for each call whose trace is recorded, and in it one for the time that the store took.
// Descriptors are left out: their values may identify clients.
func (s *Service) serveTraced(ctx context.Context, calls []Call, early func() bool) {
	var recorded *spans // nil while no call is recorded
	for i := range calls {
		parent := ctx
		if calls[i].Traceparent != "" {
			parent = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{TraceHeader: calls[i].Traceparent})
		}
		_, span := s.options.Tracer.Start(parent, MethodPath[1:], callSpan...)
		if !span.IsRecording() {
			span.End()
			continue
		}
		if recorded == nil {
			recorded = &spans{tracer: s.options.Tracer, calls: make([]trace.Span, len(calls))}
		}
		recorded.calls[i] = span
	}
	s.answer(ctx, calls, early, recorded)
	if recorded == nil {
		return
	}
	for i, span := range recorded.calls {
		if span == nil || calls[i].Postponed {
			continue // a postponed call gets its span when it is served: one that has not ended is not sent
		}
		span.SetAttributes(semconv.RPCResponseStatusCode(calls[i].Code.String()))
		if calls[i].Code == codes.Internal {
			span.SetStatus(otelcodes.Error, calls[i].Message)
		}
		span.End()
	}
}

// decided tells the spans what was decided.
func (r *spans) decided(ctx context.Context, w *work) {
	for i, at := range w.calls {
		if span := r.calls[at]; span != nil && w.batch.Decisions[i].Err == nil {
			r.describe(ctx, span, w, w.batch.Requests[i].Domain, &w.batch.Decisions[i])
		}
	}
}

func (r *spans) describe(ctx context.Context, span trace.Span, w *work, domain string, decision *engine.Decision) {
	asked, cached := false, false
	var rules []string
	for i := range decision.Statuses {
		status := &decision.Statuses[i]
		asked = asked || status.Limit != nil && !status.Cached
		cached = cached || status.Cached
		if status.Rule != nil {
			rules = append(rules, status.Rule.Label())
		}
	}
	span.SetAttributes(
		attribute.String("weir.domain", spanText(domain)),
		attribute.Int("weir.descriptors", len(decision.Statuses)),
		attribute.StringSlice("weir.rules", rules),
		attribute.Bool("weir.over_limit", decision.Over),
		attribute.Bool("weir.deny_cache", cached),
		attribute.Bool("weir.degraded", decision.Degraded),
	)
	if w.batch.StoreBegan.IsZero() || !asked && decision.StoreErr == nil {
		return
	}
	_, store := r.tracer.Start(trace.ContextWithSpan(ctx, span), "store", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(w.batch.StoreBegan), trace.WithAttributes(attribute.Int("weir.calls", len(w.calls))))
	if decision.Degraded {
		store.SetStatus(otelcodes.Error, "the store could not decide")
	}
	store.End(trace.WithTimestamp(w.batch.StoreEnded))
}

// spanText makes a caller's text fit for a span: a copy of bounded length, of valid UTF-8.
func spanText(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxSpanText)]), "\uFFFD")
}
