package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/pkg/client"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// guarded serves gRPC's health service, which has a unary and a streaming method, behind a Guard.
func guarded(t *testing.T, options client.GuardOptions) healthpb.HealthClient {
	t.Helper()
	guard := newGuard(t, options)
	server := grpc.NewServer(grpc.UnaryInterceptor(guard.UnaryServerInterceptor()), grpc.StreamInterceptor(guard.StreamServerInterceptor()))
	checks := health.NewServer()
	healthpb.RegisterHealthServer(server, checks)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = connection.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return healthpb.NewHealthClient(connection)
}

func TestInterceptorsAllow(t *testing.T) {
	left := perMinute
	left.Remaining = 3
	check := &checker{answer: allowedWith(left)}
	service := guarded(t, client.GuardOptions{
		Checker: check, Scope: "endpoint", Key: client.ByEndpoint(),
		Cost: func(c *client.Call) int64 {
			if strings.HasSuffix(c.Method, "Watch") {
				return 10
			}
			return 1
		},
	})
	var header metadata.MD
	if _, err := service.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if got := header.Get("ratelimit"); !slices.Equal(got, []string{`"api";r=3;t=30`}) {
		t.Errorf("ratelimit: %q", got)
	}
	if got := check.last(t); got.Scope != "endpoint" || got.Identifier != "/grpc.health.v1.Health/Check" || got.Cost != 1 {
		t.Errorf("checked %+v", got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := service.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if header, err := stream.Header(); err != nil || len(header.Get("ratelimit-policy")) != 1 {
		t.Errorf("header %v, %v", header, err)
	}
	if got := check.last(t); got.Identifier != "/grpc.health.v1.Health/Watch" || got.Cost != 10 {
		t.Errorf("checked %+v", got)
	}
	if check.count() != 2 {
		t.Errorf("%d checks for 2 calls", check.count())
	}
}

func TestInterceptorsDeny(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(context.Context, client.Check) (client.Decision, error)
		code   codes.Code
		reason string
		retry  time.Duration // 0: no RetryInfo
		quota  string        // the violation's description; empty: no QuotaFailure
	}{
		"limit": {deniedBy(overMinute(ratelimit.Protection)), codes.ResourceExhausted, "RATE_LIMIT_EXCEEDED", 2500 * time.Millisecond, "10 per 1m0s"},
		"refused": {func(context.Context, client.Check) (client.Decision, error) {
			return client.Decision{Cause: respond.Refused}, nil
		}, codes.ResourceExhausted, "RATE_LIMIT_REFUSED", 0, ""},
		"failed": {func(context.Context, client.Check) (client.Decision, error) {
			return client.Decision{}, errors.New("broken")
		}, codes.Unavailable, "RATE_LIMIT_UNAVAILABLE", time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			service := guarded(t, client.GuardOptions{Checker: &checker{answer: test.answer}, FailClosed: true})
			_, unary := service.Check(t.Context(), &healthpb.HealthCheckRequest{})
			stream, err := service.Watch(t.Context(), &healthpb.HealthCheckRequest{})
			if err != nil {
				t.Fatal(err)
			}
			_, streamed := stream.Recv()
			if errors.Is(streamed, io.EOF) {
				t.Fatal("the stream ended well")
			}
			for _, err := range []error{unary, streamed} {
				got := status.Convert(err)
				if got.Code() != test.code {
					t.Errorf("got %v, want %v", err, test.code)
				}
				var reason, quota string
				var retry time.Duration
				for _, detail := range got.Details() {
					switch detail := detail.(type) {
					case *errdetails.ErrorInfo:
						reason = detail.GetReason()
					case *errdetails.RetryInfo:
						retry = detail.GetRetryDelay().AsDuration()
					case *errdetails.QuotaFailure:
						quota = detail.GetViolations()[0].GetDescription()
					}
				}
				if reason != test.reason || retry != test.retry || quota != test.quota {
					t.Errorf("reason %q, retry %v, quota %q; want %q, %v, %q", reason, retry, quota, test.reason, test.retry, test.quota)
				}
			}
		})
	}
}

func TestInterceptorKeys(t *testing.T) {
	address, err := client.ByAddress(client.AddressOptions{TrustedProxies: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		key  client.KeyFunc
		send []string
		want string
	}{
		"peer":      {address, nil, "127.0.0.1"},
		"forwarded": {address, []string{"x-forwarded-for", "6.6.6.6, 1.2.3.4"}, "1.2.3.4"},
		"metadata":  {client.ByHeader("X-Api-Key"), []string{"x-api-key", "k1"}, "k1"},
		"none":      {client.ByHeader("X-Api-Key"), nil, "anonymous"},
	} {
		check := &checker{}
		service := guarded(t, client.GuardOptions{Checker: check, Key: test.key})
		ctx := metadata.AppendToOutgoingContext(t.Context(), test.send...)
		if _, err := service.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := check.last(t).Identifier; got != test.want {
			t.Errorf("%s: counted by %q, want %q", name, got, test.want)
		}
	}
}

func TestInterceptorsSkipAndFailOpen(t *testing.T) {
	check := &checker{answer: func(context.Context, client.Check) (client.Decision, error) {
		return client.Decision{}, errors.New("broken")
	}}
	service := guarded(t, client.GuardOptions{Checker: check, Skip: func(c *client.Call) bool { return strings.HasSuffix(c.Method, "/Check") }})
	if _, err := service.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || check.count() != 0 {
		t.Errorf("skipped: %v after %d checks", err, check.count())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := service.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil || check.count() != 1 {
		t.Errorf("failed open: %v after %d checks", err, check.count())
	}
}

func TestInterceptorEndsCallsThatWereGivenUp(t *testing.T) {
	guard := newGuard(t, client.GuardOptions{Checker: &checker{answer: func(ctx context.Context, _ client.Check) (client.Decision, error) {
		<-ctx.Done()
		return client.Decision{}, ctx.Err()
	}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := guard.UnaryServerInterceptor()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) {
		t.Error("the handler was called")
		return nil, nil
	})
	if status.Code(err) != codes.Canceled {
		t.Errorf("got %v, want CANCELED", err)
	}
}
