package client_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/weirhq/weir/pkg/client"
	ratelimitv1 "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

// service is the API with answers that a test chooses, so that a client meets what a good server never says.
type service struct {
	ratelimitv1.UnimplementedRateLimitServiceServer
	mu    sync.Mutex
	calls map[string]int
	token string // of the last call, without its scheme

	check func(context.Context, *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error)
	fail  func(call int) error // of every other method
	rules []*ratelimitv1.RateLimitRule
}

func (s *service) called(ctx context.Context, method string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[method]++
	s.token = strings.TrimPrefix(strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), "|"), "Bearer ")
	if s.fail != nil {
		return s.calls[method], s.fail(s.calls[method])
	}
	return s.calls[method], nil
}

func (s *service) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

func (s *service) CheckRateLimit(ctx context.Context, r *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error) {
	if _, err := s.called(ctx, "Check"); err != nil {
		return nil, err
	}
	return s.check(ctx, r)
}

func (s *service) GetRule(ctx context.Context, r *ratelimitv1.GetRuleRequest) (*ratelimitv1.GetRuleResponse, error) {
	if _, err := s.called(ctx, "GetRule"); err != nil {
		return nil, err
	}
	return &ratelimitv1.GetRuleResponse{Rule: &ratelimitv1.RateLimitRule{Id: r.GetRuleId()}}, nil
}

func (s *service) CreateRule(ctx context.Context, r *ratelimitv1.CreateRuleRequest) (*ratelimitv1.CreateRuleResponse, error) {
	if _, err := s.called(ctx, "CreateRule"); err != nil {
		return nil, err
	}
	return &ratelimitv1.CreateRuleResponse{Rule: &ratelimitv1.RateLimitRule{Id: "new", Key: r.GetKey(), Limit: r.GetLimit()}}, nil
}

func (s *service) ResetLimit(ctx context.Context, r *ratelimitv1.ResetLimitRequest) (*ratelimitv1.ResetLimitResponse, error) {
	if _, err := s.called(ctx, "ResetLimit"); err != nil {
		return nil, err
	}
	return &ratelimitv1.ResetLimitResponse{Success: r.GetScope() != "", Message: "done"}, nil
}

func (s *service) ListRules(ctx context.Context, r *ratelimitv1.ListRulesRequest) (*ratelimitv1.ListRulesResponse, error) {
	if _, err := s.called(ctx, "ListRules"); err != nil {
		return nil, err
	}
	from := min((r.GetPage()-1)*r.GetPageSize(), int64(len(s.rules)))
	to := min(from+r.GetPageSize(), int64(len(s.rules)))
	return &ratelimitv1.ListRulesResponse{Rules: s.rules[from:to], Pagination: &ratelimitv1.Pagination{
		TotalCount: int64(len(s.rules)), Page: r.GetPage(), PageSize: r.GetPageSize(), HasNext: to < int64(len(s.rules)),
	}}, nil
}

// start serves s on a free port and returns its address.
func start(t testing.TB, s ratelimitv1.RateLimitServiceServer, options ...grpc.ServerOption) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	ratelimitv1.RegisterRateLimitServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// dial returns a client of s.
func dial(t testing.TB, s ratelimitv1.RateLimitServiceServer, options client.Options) *client.Client {
	t.Helper()
	options.Address = start(t, s)
	if options.CheckTimeout == 0 {
		options.CheckTimeout = testTimeout
	}
	c, err := client.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// failure is an error as the API makes it.
func failure(code codes.Code, reason, message string, details ...protoadapt.MessageV1) error {
	details = append([]protoadapt.MessageV1{
		&errdetails.ErrorInfo{Domain: "weir", Reason: reason}, &errdetails.RequestInfo{RequestId: "r-1"},
	}, details...)
	s, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		panic(fmt.Sprint("details: ", err))
	}
	return s.Err()
}

// once fails the first n calls.
func once(n int64, err error) func(int) error {
	var calls atomic.Int64
	return func(int) error {
		if calls.Add(1) <= n {
			return err
		}
		return nil
	}
}
