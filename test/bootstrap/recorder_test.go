package bootstrap

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// recorder is a rate limit service that writes down what it is asked, and denies on demand.
type recorder struct {
	rls.UnimplementedRateLimitServiceServer
	addr   string
	health *health.Server

	mu       sync.Mutex
	deny     bool
	delay    time.Duration
	requests []*rls.RateLimitRequest
}

func startRecorder(t *testing.T) *recorder {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{addr: listener.Addr().String(), health: health.NewServer()}
	r.health.SetServingStatus(rls.RateLimitService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	server := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(server, r)
	grpc_health_v1.RegisterHealthServer(server, r.health)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("recorder: %v", err)
		}
	})
	return r
}

func (r *recorder) ShouldRateLimit(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	r.mu.Lock()
	r.requests = append(r.requests, request)
	deny, delay := r.deny, r.delay
	r.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	code, remaining := rls.RateLimitResponse_OK, uint32(9)
	if deny {
		code, remaining = rls.RateLimitResponse_OVER_LIMIT, 0
	}
	reply := &rls.RateLimitResponse{OverallCode: code}
	for range request.GetDescriptors() {
		reply.Statuses = append(reply.Statuses, &rls.RateLimitResponse_DescriptorStatus{
			Code:               code,
			LimitRemaining:     remaining,
			DurationUntilReset: durationpb.New(7 * time.Second),
			CurrentLimit: &rls.RateLimitResponse_RateLimit{
				Name: "demo", RequestsPerUnit: 10, Unit: rls.RateLimitResponse_RateLimit_MINUTE,
			},
		})
	}
	return reply, nil
}

// set changes how calls from now on are answered.
func (r *recorder) set(deny bool, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deny, r.delay = deny, delay
}

// take returns the calls since the last take, each as its descriptors in one line: "k=v,k=v; k=v*cost".
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make([]string, len(r.requests))
	for i, request := range r.requests {
		calls[i] = format(request)
	}
	r.requests = nil
	return calls
}

func format(request *rls.RateLimitRequest) string {
	descriptors := make([]string, len(request.GetDescriptors()))
	for i, descriptor := range request.GetDescriptors() {
		entries := make([]string, len(descriptor.GetEntries()))
		for j, entry := range descriptor.GetEntries() {
			entries[j] = entry.GetKey() + "=" + entry.GetValue()
		}
		descriptors[i] = strings.Join(entries, ",")
		if cost := descriptor.GetHitsAddend(); cost != nil {
			descriptors[i] += fmt.Sprintf("*%d", cost.GetValue())
		}
	}
	slices.Sort(descriptors) // the order has no meaning
	return request.GetDomain() + ": " + strings.Join(descriptors, "; ")
}
