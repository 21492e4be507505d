package envoy_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/envoy"
)

// traced returns a service whose spans are recorded, all of them unless a caller says otherwise.
func traced(t *testing.T) (*envoy.Service, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	t.Cleanup(func() { _ = provider.Shutdown(context.WithoutCancel(t.Context())) })
	return service(t, envoy.Options{Tracer: provider.Tracer("test")}), recorder
}

// serialized asks for a descriptor of a domain.
func serialized(t testing.TB, domain string) []byte {
	t.Helper()
	data, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: domain, Descriptors: request(descriptor("user", "ann")).GetDescriptors()})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSpans(t *testing.T) {
	s, recorder := traced(t)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	asked := serialized(t, "edge")
	calls := []envoy.Call{
		{Request: asked, Traceparent: "00-" + trace + "-00f067aa0ba902b7-01"},
		{Request: asked, Traceparent: "00-" + trace + "-00f067aa0ba902b7-00"}, // not recorded
		{Request: []byte("\xff"), Traceparent: "nonsense"},                    // a trace of its own
		{Request: serialized(t, strings.Repeat("é", 200))},
	}
	s.Serve(t.Context(), calls)
	if calls[0].Code != codes.OK || calls[1].Code != codes.OK || calls[2].Code != codes.InvalidArgument || calls[3].Code != codes.OK {
		t.Fatalf("answered %v", calls)
	}
	var names []string
	for _, span := range recorder.Ended() {
		name := span.Name()
		if span.SpanContext().TraceID().String() == trace {
			name = "caller's " + name
		}
		for _, attribute := range span.Attributes() {
			if text := attribute.Value.AsString(); len(text) > 256+3 || strings.Contains(text, "ann") {
				t.Errorf("%s is %q", attribute.Key, text)
			}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	const call = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	if want := []string{"caller's " + call, "caller's store", call, call}; !slices.Equal(names, want) {
		t.Errorf("spans %q, want %q", names, want)
	}
}

func BenchmarkServeTraced(b *testing.B) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	s := service(b, envoy.Options{Tracer: provider.Tracer("test")})
	calls := []envoy.Call{{Request: serialized(b, "edge")}}
	b.ReportAllocs()
	for b.Loop() {
		calls[0].Reply = calls[0].Reply[:0]
		s.Serve(b.Context(), calls)
	}
}
