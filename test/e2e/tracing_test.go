package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/test/servers"
)

// collector receives spans by OTLP.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu        sync.Mutex
	spans     []*tracev1.Span
	resources map[string]string
}

// Export implements the collector's gRPC service.
func (c *collector) Export(_ context.Context, request *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, attribute := range resource.GetResource().GetAttributes() {
			c.resources[attribute.GetKey()] = attribute.GetValue().GetStringValue()
		}
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// ServeHTTP is the same over HTTP.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := new(collectorv1.ExportTraceServiceRequest)
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint("not OTLP: ", err), http.StatusBadRequest)
		return
	}
	_, _ = c.Export(r.Context(), request)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// serve receives over a protocol and returns the endpoint.
func (c *collector) serve(t *testing.T, protocol string) string {
	t.Helper()
	c.resources = make(map[string]string)
	if protocol == "http" {
		server := httptest.NewServer(c)
		t.Cleanup(server.Close)
		return server.URL
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return "http://" + listener.Addr().String()
}

// tree lists the spans of a trace, one line each, "NAME < PARENT'S NAME", sorted. A parent that the collector has not seen is
// shown by its ID.
func (c *collector) tree(trace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make(map[string]string)
	for _, span := range c.spans {
		names[hex.EncodeToString(span.GetSpanId())] = span.GetName()
	}
	var lines []string
	for _, span := range c.spans {
		if hex.EncodeToString(span.GetTraceId()) != trace {
			continue
		}
		parent := hex.EncodeToString(span.GetParentSpanId())
		if name, ok := names[parent]; ok {
			parent = name
		}
		lines = append(lines, span.GetName()+" < "+parent)
	}
	slices.Sort(lines)
	return lines
}

const (
	tracedRules = "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: day, requests_per_unit: 100}}\n" +
		"  - {key: blocked, action: deny}\n---\ndomain: k1s0\ndescriptors:\n  - {key: user, rate_limit: {unit: day, requests_per_unit: 100}}\n"
	callerSpan = "00f067aa0ba902b7"
	callName   = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
)

// traceID is a trace ID that ends in n.
func traceID(n int) string { return fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e%04x", n) }

// askTraced asks as a caller whose trace has this ID, and is recorded or not.
func askTraced(t *testing.T, connection grpc.ClientConnInterface, trace string, recorded bool, request *rlsv3.RateLimitRequest) {
	t.Helper()
	flags := "00"
	if recorded {
		flags = "01"
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-"+callerSpan+"-"+flags)
	if _, err := rlsv3.NewRateLimitServiceClient(connection).ShouldRateLimit(ctx, request); err != nil {
		t.Fatal(err)
	}
}

func TestTraces(t *testing.T) {
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			received := &collector{}
			weir := servers.Weir(t, servers.WeirOptions{
				Rules: map[string]string{"rules.yaml": tracedRules},
				Set: map[string]string{
					"tracing.enabled": "true", "tracing.protocol": protocol, "tracing.sampling_rate": "0",
					"tracing.service_name": "limits", "tracing.service_namespace": "shop", "tracing.service_instance_id": "one",
				},
				Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + received.serve(t, protocol), "OTEL_RESOURCE_ATTRIBUTES=zone=a"},
			})
			fast, err := grpc.NewClient(weir.Fast(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = fast.Close() })
			for i, connection := range []grpc.ClientConnInterface{fast, weir.Dial()} {
				askTraced(t, connection, traceID(i), true, request("edge", "user=ann"))
				askTraced(t, connection, traceID(10+i), false, request("edge", "user=ann"))
				askTraced(t, connection, traceID(20+i), true, request("edge", "blocked=ann"))
				ask(t, rlsv3.NewRateLimitServiceClient(connection), request("edge", "user=ann")) // a trace that begins here: none of them
			}
			answered := call(t, weir, http.StatusOK, http.MethodPost, "/check", "", `{"scope":"user","identifier":"ann"}`,
				"traceparent", "00-"+traceID(30)+"-"+callerSpan+"-01")
			weir.Process().Stop() // the last spans are sent at the end

			for i := range 2 {
				want := []string{callName + " < " + callerSpan, "store < " + callName}
				if got := received.tree(traceID(i)); !slices.Equal(got, want) {
					t.Errorf("trace %d is %q, want %q", i, got, want)
				}
				if got := received.tree(traceID(10 + i)); len(got) > 0 {
					t.Errorf("a trace that its caller does not record is %q", got)
				}
				want = want[:1] // there is nothing to count
				if got := received.tree(traceID(20 + i)); !slices.Equal(got, want) {
					t.Errorf("the trace of a denial without a limit is %q, want %q", got, want)
				}
			}
			if got, want := received.tree(traceID(30)), []string{"POST < " + callerSpan}; !slices.Equal(got, want) {
				t.Errorf("the trace of the REST API is %q, want %q (%s)", got, want, answered.body)
			}
			if len(received.spans) != 7 {
				t.Errorf("%d spans came, want 7", len(received.spans))
			}
			for key, want := range map[string]string{
				"service.name": "limits", "service.namespace": "shop", "service.instance.id": "one", "zone": "a",
			} {
				if got := received.resources[key]; got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
			for _, span := range received.spans {
				if strings.Contains(span.String(), "ann") {
					t.Errorf("a span names a client: %v", span)
				}
			}
		})
	}
}

// Traces that begin here are recorded by the sampling rate.
func TestTracesThatBeginHere(t *testing.T) {
	received := &collector{}
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": tracedRules},
		Set:   map[string]string{"tracing.enabled": "true"},
		Env:   []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + received.serve(t, "http")},
	})
	client := clientOf(weir)
	for range 5 {
		ask(t, client, request("edge", "user=ann"))
	}
	weir.Process().Stop()
	if len(received.spans) != 10 {
		t.Errorf("%d spans came for 5 calls, want 10", len(received.spans))
	}
}

// A collector that is away, or that nobody has told about, costs spans and nothing else.
func TestCollectorAway(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": tracedRules},
		Set:   map[string]string{"tracing.enabled": "true"},
		Env: []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + servers.Address(servers.FreePort(t)),
			"OTEL_BSP_MAX_QUEUE_SIZE=8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4", "OTEL_BSP_SCHEDULE_DELAY=10",
		},
	})
	l := startLoad(t, []rlsv3.RateLimitServiceClient{clientOf(weir)}, 4, func() *rlsv3.RateLimitRequest { return request("edge", "user=ann") })
	servers.Eventually(t, "2000 calls", func() bool { return l.Allowed.Load()+l.Denied.Load() >= 2000 })
	l.Stop()
	weir.Process().Stop()
	if err := weir.Process().Err(); err != nil {
		t.Errorf("weir ended with %v:\n%s", err, weir.Process().Log())
	}
}
