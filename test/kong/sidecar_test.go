package kong_test

import (
	"context"
	"maps"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
	ratelimitv1 "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

// sidecar is a server of the k1s0 API that can be stopped, started and made to hang at any moment. It keeps its counters.
type sidecar struct {
	ratelimitv1.UnimplementedRateLimitServiceServer

	t       *testing.T
	limiter *engine.Limiter
	address string

	options []grpc.ServerOption

	mu     sync.Mutex
	server *grpc.Server
	last   *ratelimitv1.CheckRateLimitRequest

	calls, conns atomic.Int64
	hang         atomic.Pointer[chan struct{}]
}

func startSidecar(t *testing.T, options ...grpc.ServerOption) *sidecar {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(store.Close)
	s := &sidecar{t: t, limiter: engine.New(store, engine.Options{}), address: "127.0.0.1:0", options: options}
	table, err := rules.Load([]string{rulesFile(t)}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.limiter.SetTable(table)
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
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]any{"mode": "grpc", "grpc": map[string]any{"host": host, "port": number, "timeout": 2000}}
	maps.Copy(all, values)
	return all
}

func (s *sidecar) CheckRateLimit(ctx context.Context, in *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error) {
	s.calls.Add(1)
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
	request := ratelimit.Request{Domain: in.GetDomain(), Cost: 1, ID: in.GetRequestId(), Atomic: true}
	if in.Cost != nil {
		request.Cost = in.GetCost()
	}
	for _, d := range in.GetDescriptors() {
		descriptor := ratelimit.Descriptor{HasCost: d.Cost != nil, Cost: d.GetCost()}
		for _, e := range d.GetEntries() {
			descriptor.Entries = append(descriptor.Entries, ratelimit.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		if l := d.GetLimit(); l != nil {
			algorithm, err := ratelimit.ParseAlgorithm(l.GetAlgorithm())
			if err != nil {
				return nil, err
			}
			descriptor.Limit = &ratelimit.Limit{
				Name: l.GetName(), Algorithm: algorithm, Count: l.GetLimit(), Burst: l.GetBurst(), Window: time.Duration(l.GetWindowMs()) * time.Millisecond,
			}
			switch l.GetCalendar() {
			case "month":
				descriptor.Limit.Calendar = ratelimit.CalendarMonth
			case "year":
				descriptor.Limit.Calendar = ratelimit.CalendarYear
			}
			request.Fallback = descriptor.Limit
		}
		request.Descriptors = append(request.Descriptors, descriptor)
	}
	decision := s.limiter.Check(ctx, request, false)
	if decision.Err != nil {
		return nil, decision.Err
	}
	out := &ratelimitv1.CheckRateLimitResponse{Allowed: !decision.Over}
	for _, status := range decision.Statuses {
		for _, counted := range status.Limits {
			out.Results = append(out.Results, &ratelimitv1.LimitResult{
				Name: counted.Limit.Name, Limit: counted.Limit.Count, WindowMs: counted.Limit.Window.Milliseconds(), Burst: counted.Limit.Burst,
				Kind: counted.Limit.Kind.String(), Allowed: counted.Result.Allowed, Remaining: counted.Result.Remaining,
				ResetAt: time.Now().Add(counted.Result.ResetAfter).Unix(), RetryAfterMs: counted.Result.RetryAfter.Milliseconds(),
			})
		}
	}
	return out, nil
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
