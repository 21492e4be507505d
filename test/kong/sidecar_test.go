package kong_test

import (
	"context"
	"maps"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	ratelimitv1 "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
	"github.com/weirhq/weir/test/servers"
)

// startWeir starts a real weir server with rulesFile's rules.
func startWeir(t *testing.T) *servers.WeirServer {
	t.Helper()
	return servers.Weir(t, servers.WeirOptions{RulesPath: filepath.Dir(rulesFile(t))})
}

// asks is a plugin config that asks the server at an address.
func asks(t *testing.T, address string, values map[string]any) map[string]any {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"mode": "grpc", "grpc": map[string]any{"host": host, "port": number, "timeout": 2000}}
	maps.Copy(all, values)
	return all
}

// sidecar is a door to a real weir server, which can be shut, opened and made to hang at any moment. It sees what is asked.
type sidecar struct {
	ratelimitv1.UnimplementedRateLimitServiceServer

	t       *testing.T
	weir    ratelimitv1.RateLimitServiceClient
	address string

	options []grpc.ServerOption

	mu     sync.Mutex
	server *grpc.Server
	last   *ratelimitv1.CheckRateLimitRequest

	conns atomic.Int64
	hang  atomic.Pointer[chan struct{}]
}

func startSidecar(t *testing.T, options ...grpc.ServerOption) *sidecar {
	t.Helper()
	s := &sidecar{t: t, weir: ratelimitv1.NewRateLimitServiceClient(startWeir(t).Dial()), address: "127.0.0.1:0", options: options}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *sidecar) start() {
	s.t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = listener.Addr().String()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = grpc.NewServer(append(s.options, grpc.StatsHandler(&connCounter{n: &s.conns}))...)
	ratelimitv1.RegisterRateLimitServiceServer(s.server, s)
	go func(server *grpc.Server) { _ = server.Serve(listener) }(s.server)
}

// stop ends the server at once: calls under way fail.
func (s *sidecar) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server.Stop()
}

// pause makes calls hang until resume.
func (s *sidecar) pause() {
	gate := make(chan struct{})
	s.hang.Store(&gate)
}

func (s *sidecar) resume() { close(*s.hang.Swap(nil)) }

// config is a plugin config that asks this server.
func (s *sidecar) config(values map[string]any) map[string]any {
	s.t.Helper()
	return asks(s.t, s.address, values)
}

func (s *sidecar) CheckRateLimit(ctx context.Context, in *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error) {
	if gate := s.hang.Load(); gate != nil {
		select {
		case <-*gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	s.last = in
	s.mu.Unlock()
	return s.weir.CheckRateLimit(ctx, in)
}

func (s *sidecar) lastRequest() *ratelimitv1.CheckRateLimitRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// connCounter counts connections.
type connCounter struct{ n *atomic.Int64 }

func (connCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (connCounter) HandleRPC(context.Context, stats.RPCStats)                       {}
func (connCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}

func (c connCounter) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnBegin); ok {
		c.n.Add(1)
	}
}
