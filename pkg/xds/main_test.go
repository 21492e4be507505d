package xds

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = "envoy-ratelimit"

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// plane is a control plane as Envoy Gateway has one: go-control-plane's server over a snapshot cache.
type plane struct {
	t       testing.TB
	address string
	cache   cache.SnapshotCache
	// requests are all but the first of each stream: what the client made of the responses.
	requests chan *discovery.DiscoveryRequest
	first    chan *discovery.DiscoveryRequest
	server   *grpc.Server
	end      context.CancelFunc
	done     chan struct{}
	version  int
}

func newPlane(t testing.TB, options ...grpc.ServerOption) *plane {
	t.Helper()
	p := &plane{
		t: t, requests: make(chan *discovery.DiscoveryRequest, 10_000), first: make(chan *discovery.DiscoveryRequest, 10_000),
	}
	p.start("127.0.0.1:0", options...)
	t.Cleanup(p.stop)
	return p
}

// start begins without any rules, as a control plane that was restarted does.
func (p *plane) start(address string, options ...grpc.ServerOption) {
	p.t.Helper()
	listener, err := new(net.ListenConfig).Listen(p.t.Context(), "tcp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.address, p.version = listener.Addr().String(), 0
	p.cache = cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	p.server = grpc.NewServer(options...)
	ctx, cancel := context.WithCancel(context.Background())
	p.end = cancel
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, server.NewServer(ctx, p.cache, server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, request *discovery.DiscoveryRequest) error {
			if request.GetResponseNonce() == "" {
				p.first <- request
			} else {
				p.requests <- request
			}
			return nil
		},
	}))
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		_ = p.server.Serve(listener)
	}()
}

// stop ends the control plane with all its connections.
func (p *plane) stop() {
	p.end()
	p.server.Stop()
	<-p.done
}

// set makes these all the rules that there are.
func (p *plane) set(configs ...*configpb.RateLimitConfig) {
	p.t.Helper()
	p.version++
	all := make([]types.Resource, len(configs))
	for i := range configs {
		all[i] = configs[i]
	}
	snapshot, err := cache.NewSnapshot(fmt.Sprint(p.version), map[resource.Type][]types.Resource{TypeURL: all})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cache.SetSnapshot(p.t.Context(), node, snapshot); err != nil {
		p.t.Fatal(err)
	}
}

// acked waits until a version is accepted.
func (p *plane) acked(version int) {
	p.t.Helper()
	for {
		request := p.next()
		switch detail := request.GetErrorDetail(); {
		case detail != nil: // the server answers a NACK by the same rules
			p.t.Logf("NACK: %s", detail.GetMessage())
		case request.GetVersionInfo() == fmt.Sprint(version):
			return
		}
	}
}

// nacked waits for a refusal and returns it.
func (p *plane) nacked() *discovery.DiscoveryRequest {
	p.t.Helper()
	for {
		if request := p.next(); request.GetErrorDetail() != nil {
			return request
		}
	}
}

func (p *plane) next() *discovery.DiscoveryRequest {
	p.t.Helper()
	return receive(p.t, p.requests, "a request of the client")
}

func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// sink keeps what it is given.
type sink struct {
	mu      sync.Mutex
	table   *rules.Table
	version string
	puts    int
	refused []error
	changed chan struct{}
	refuse  func(*rules.Table) error
}

func newSink() *sink { return &sink{changed: make(chan struct{}, 1)} }

func (s *sink) Put(table *rules.Table, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		if err := s.refuse(table); err != nil {
			return err
		}
	}
	s.table, s.version = table, version
	s.puts++
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

func (s *sink) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, err)
}

func (s *sink) current() (*rules.Table, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table, s.version
}

// limit is what applies to a user in a domain, 0 if nothing does.
func (s *sink) limit(domain, user string) int64 {
	table, _ := s.current()
	if table == nil {
		return 0
	}
	rule := table.Match(domain, []ratelimit.Entry{{Key: "user", Value: user}}).Rule
	if rule == nil {
		return 0
	}
	return rule.Limits[0].Count
}

// follow runs a client until the test ends.
func follow(t testing.TB, options Options) (*Client, *sink) {
	t.Helper()
	if options.NodeID == "" {
		options.NodeID = node
	}
	if options.ConnectRetry == 0 {
		options.ConnectRetry = 10 * time.Millisecond
	}
	if options.Backoff == (Backoff{}) {
		options.Backoff = Backoff{Initial: 10 * time.Millisecond, Max: 50 * time.Millisecond}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	client, into := New(options), newSink()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		client.Run(ctx, into)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return client, into
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to be: %s", what)
		}
	}
}

// users are the rules of a domain that allows each user so many requests an hour.
func users(domain string, count uint32) *configpb.RateLimitConfig {
	return &configpb.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*configpb.RateLimitDescriptor{
		{Key: "user", RateLimit: &configpb.RateLimitPolicy{Unit: configpb.RateLimitUnit_HOUR, RequestsPerUnit: count}},
	}}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}
