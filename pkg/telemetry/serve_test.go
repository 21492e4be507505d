package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// logBuffer holds log lines that several goroutines write.
type logBuffer struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// moody answers by the name of the service that it is asked about.
type moody struct {
	healthpb.UnimplementedHealthServer
}

func (moody) Check(_ context.Context, request *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	switch request.GetService() {
	case "panic":
		panic("sesame")
	case "absent":
		return nil, status.Error(codes.NotFound, "no such service")
	case "odd":
		return nil, status.Error(99, "no such code")
	}
	return &healthpb.HealthCheckResponse{}, nil
}

func (moody) Watch(*healthpb.HealthCheckRequest, healthpb.Health_WatchServer) error { panic("sesame") }

func TestGRPC(t *testing.T) {
	var log logBuffer
	m := newMetrics(t)
	logger := slog.New(slog.NewTextHandler(&log, nil))
	server := grpc.NewServer(grpc.UnaryInterceptor(m.UnaryInterceptor(logger)), grpc.StreamInterceptor(m.StreamInterceptor(logger)))
	healthpb.RegisterHealthServer(server, moody{})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	for service, want := range map[string]codes.Code{"": codes.OK, "absent": codes.NotFound, "panic": codes.Internal, "odd": 99} {
		_, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if status.Code(err) != want {
			t.Errorf("%q: %v, want %v", service, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "sesame") {
			t.Errorf("the client is told of the panic: %v", err)
		}
	}
	stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("the stream: %v", err)
	}
	expect(t, m, "weir_grpc_requests_total",
		`{code="OK",method="/grpc.health.v1.Health/Check"} 1`,
		`{code="NotFound",method="/grpc.health.v1.Health/Check"} 1`,
		`{code="Internal",method="/grpc.health.v1.Health/Check"} 1`,
		`{code="Unknown",method="/grpc.health.v1.Health/Check"} 1`,
		`{code="Internal",method="/grpc.health.v1.Health/Watch"} 1`)
	expect(t, m, "weir_grpc_request_duration_seconds_count",
		`{method="/grpc.health.v1.Health/Check"} 4`, `{method="/grpc.health.v1.Health/Watch"} 0`)
	expect(t, m, "weir_panics_total", `{where="grpc"} 2`)
	if text := log.String(); strings.Count(text, "a gRPC handler panicked") != 2 || !strings.Contains(text, "sesame") || !strings.Contains(text, "serve_test.go") {
		t.Errorf("the log does not say where it panicked: %s", text)
	}
}

func TestInterceptorAllocatesNothing(t *testing.T) {
	m := newMetrics(t)
	intercept := m.UnaryInterceptor(slog.New(slog.DiscardHandler))
	info := &grpc.UnaryServerInfo{FullMethod: "/service/Method"}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = intercept(ctx, nil, info, handler) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestConcurrentFirstCalls(t *testing.T) {
	m := newMetrics(t)
	var group sync.WaitGroup
	for i := range 64 {
		group.Go(func() { m.grpc.method("/service/Method" + string(rune('A'+i%8))).ended(nil) })
	}
	group.Wait()
	if samples := scrape(t, m, "weir_grpc_requests_total"); len(samples) != 8 || !strings.HasSuffix(samples[0], " 8") {
		t.Errorf("got %v", samples)
	}
}

func TestHTTP(t *testing.T) {
	var log logBuffer
	m := newMetrics(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") })
	mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic("sesame") })
	mux.HandleFunc("GET /abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("GET /flush", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("GET /late", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half")
		panic("sesame")
	})
	server := httptest.NewServer(m.HTTP("test", slog.New(slog.NewTextHandler(&log, nil)), mux))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	get := func(path string) (int, string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return response.StatusCode, string(body), err
	}
	for path, want := range map[string]int{"/ok": 200, "/absent": 404, "/panic": 500, "/flush": 200} {
		code, body, err := get(path)
		if err != nil || code != want || strings.Contains(body, "sesame") {
			t.Errorf("%s: %d %q %v", path, code, body, err)
		}
	}
	for _, path := range []string{"/abort", "/late"} {
		if _, _, err := get(path); err == nil {
			t.Errorf("%s: the answer looks whole", path)
		}
	}
	expect(t, m, "weir_http_requests_total",
		`{code="200",handler="test",method="get"} 2`, `{code="404",handler="test",method="get"} 1`, `{code="500",handler="test",method="get"} 1`)
	expect(t, m, "weir_panics_total", `{where="http"} 2`)
	if !strings.Contains(log.String(), `panic=sesame`) || !strings.Contains(log.String(), "path=/panic") {
		t.Errorf("the log says %s", log.String())
	}
}
