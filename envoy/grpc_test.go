package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// dial starts a grpc-go server with the service, health and reflection, and connects to it.
func dial(t testing.TB, s *envoy.Service, options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(options, envoy.ServerOption())...)
	envoy.Register(server, s)
	healthy := health.NewServer()
	healthy.SetServingStatus(envoy.ServiceName, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, healthy)
	reflection.Register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

func TestGRPC(t *testing.T) {
	conn := dial(t, service(t, envoy.Options{}))
	client := rlsv3.NewRateLimitServiceClient(conn)
	for i, want := range []string{
		`OK OK(3/MINUTE "per-user" left 2 for 60s) OK`,
		`OK OK(3/MINUTE "per-user" left 1 for 60s) OK`,
		`OK OK(3/MINUTE "per-user" left 0 for 60s) OK`,
		`OVER_LIMIT OVER_LIMIT(3/MINUTE "per-user" left 0 for 60s) OK`,
	} {
		m, err := client.ShouldRateLimit(t.Context(), request(descriptor("user", "a"), descriptor("free", "x")))
		if err != nil {
			t.Fatal(err)
		}
		if got := brief(m); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
	m, err := client.ShouldRateLimit(t.Context(), request(descriptor("user", "z")), grpc.UseCompressor(gzip.Name))
	if err != nil || m.GetOverallCode() != rlsv3.RateLimitResponse_OK {
		t.Errorf("compressed: %v, %v", m, err)
	}
	for name, r := range map[string]*rlsv3.RateLimitRequest{"no domain": {Descriptors: request(descriptor("a", "b")).GetDescriptors()}, "no descriptors": {Domain: "edge"}, "nothing": {}} {
		if _, err := client.ShouldRateLimit(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGRPCManyAndLarge(t *testing.T) {
	client := rlsv3.NewRateLimitServiceClient(dial(t, service(t, envoy.Options{})))
	r := request()
	for i := range 100 {
		r.Descriptors = append(r.Descriptors, descriptor("user", fmt.Sprint(i%50)), descriptor("many", strings.Repeat("v", 40_000)))
	}
	for round := range 2 {
		m, err := client.ShouldRateLimit(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.GetStatuses()) != 200 {
			t.Fatalf("%d statuses for 200 descriptors", len(m.GetStatuses()))
		}
		for i, s := range m.GetStatuses() {
			over := round == 1 && i%2 == 0 && i/2 >= 50 // the fourth hit on the same counter
			if (s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT) != over {
				t.Fatalf("round %d, status %d: %v", round, i, s)
			}
		}
	}
	for range envoy.MaxDescriptors {
		r.Descriptors = append(r.Descriptors, descriptor("a", "b"))
	}
	if _, err := client.ShouldRateLimit(t.Context(), r); status.Code(err) != codes.InvalidArgument {
		t.Errorf("more descriptors than are allowed: %v", err)
	}
}

// rawCodec sends bytes as they are and reads replies as usual.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func TestGRPCTakesBytesThatAreNotText(t *testing.T) {
	conn := dial(t, service(t, envoy.Options{}))
	codec := grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")})
	call := func(raw string) (*rlsv3.RateLimitResponse, error) {
		var m rlsv3.RateLimitResponse
		return &m, conn.Invoke(t.Context(), envoy.MethodPath, []byte(raw), &m, codec)
	}
	for i, want := range []rlsv3.RateLimitResponse_Code{1, 1, 1, 2} {
		m, err := call("\x0a\x04edge\x12\x0b\x0a\x09\x0a\x04user\x12\x01\xff")
		if err != nil || m.GetOverallCode() != want {
			t.Errorf("call %d: %v, %v", i, m, err)
		}
	}
	if _, err := call("\x0a\x7f"); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a broken message: %v", err)
	}
}

// Health and reflection work on the same server, and reflection describes the service.
func TestGRPCOtherServices(t *testing.T) {
	conn := dial(t, service(t, envoy.Options{}))
	h, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: envoy.ServiceName})
	if err != nil || h.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	list := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	if !strings.Contains(fmt.Sprint(list), envoy.ServiceName) {
		t.Errorf("services: %v", list)
	}
	found := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: envoy.ServiceName}})
	var file descriptorpb.FileDescriptorProto
	if files := found.GetFileDescriptorResponse().GetFileDescriptorProto(); len(files) == 0 {
		t.Fatalf("no descriptors: %v", found)
	} else if err := proto.Unmarshal(files[0], &file); err != nil || file.GetService()[0].GetMethod()[0].GetInputType() != ".envoy.service.ratelimit.v3.RateLimitRequest" {
		t.Errorf("described as %v, %v", &file, err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}

func TestGRPCInterceptorsSeeTheCall(t *testing.T) {
	var seen atomic.Value
	refuse := errors.New("refused")
	conn := dial(t, service(t, envoy.Options{}), grpc.UnaryInterceptor(func(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		seen.Store(info.FullMethod)
		reply, err := handle(ctx, r)
		if err == nil && ctx.Value("never") != nil {
			err = refuse
		}
		return reply, err
	}))
	if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request(descriptor("user", "a"))); err != nil {
		t.Fatal(err)
	}
	if seen.Load() != rlsv3.RateLimitService_ShouldRateLimit_FullMethodName {
		t.Errorf("the interceptor saw %v", seen.Load())
	}
}

// slow is a Store that waits for the deadline.
type slow struct{ engine.Store }

func (slow) Take(ctx context.Context, charges []ratelimit.Charge) {
	<-ctx.Done()
	for i := range charges {
		charges[i].Err = ctx.Err()
	}
}

// The caller's deadline reaches the store, and a store that fails never becomes a gRPC error.
func TestGRPCDeadlineReachesTheStore(t *testing.T) {
	reached := make(chan bool, 1)
	conn := dial(t, envoy.New(limiter(t, slow{}), envoy.Options{}), grpc.UnaryInterceptor(
		func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			reply, err := handle(ctx, r)
			_, has := ctx.Deadline()
			reached <- has && err == nil && reply != nil
			return reply, err
		}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request(descriptor("user", "a")))
	if code := status.Code(err); code != codes.OK && code != codes.DeadlineExceeded {
		t.Errorf("error %v", err)
	}
	if !<-reached {
		t.Error("the store did not see the caller's deadline, or its failure became an error")
	}
}

// Answers belong to their questions, whichever buffers they came in.
func TestGRPCConcurrently(t *testing.T) {
	client := rlsv3.NewRateLimitServiceClient(dial(t, service(t, envoy.Options{})))
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 30 {
				r := request()
				n := 1 + (g*7+i*3)%40
				for j := range n {
					switch j % 3 {
					case 0:
						r.Descriptors = append(r.Descriptors, descriptor("user", fmt.Sprint(g, i, j)))
					case 1:
						r.Descriptors = append(r.Descriptors, descriptor("foe", strings.Repeat("x", g*i)))
					default:
						r.Descriptors = append(r.Descriptors, descriptor("nothing", "here"))
					}
				}
				m, err := client.ShouldRateLimit(t.Context(), r)
				if err != nil || len(m.GetStatuses()) != n {
					t.Errorf("%d statuses for %d descriptors, %v", len(m.GetStatuses()), n, err)
					return
				}
				for j, s := range m.GetStatuses() {
					fits := s.GetCode() == rlsv3.RateLimitResponse_OK && (s.GetCurrentLimit().GetName() == "per-user" && s.GetLimitRemaining() == 2) == (j%3 == 0)
					if j%3 == 1 {
						fits = s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT
					}
					if !fits {
						t.Errorf("status %d of %d: %v", j, n, s)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestGRPCPanic(t *testing.T) {
	memory := memstore.New(memstore.Options{})
	t.Cleanup(memory.Close)
	var panics atomic.Int64
	client := rlsv3.NewRateLimitServiceClient(dial(t, envoy.New(limiter(t, faulty{Store: memory}), envoy.Options{Panicked: func(any, []byte) { panics.Add(1) }})))
	if _, err := client.ShouldRateLimit(t.Context(), request(descriptor("user", "panic"))); status.Code(err) != codes.Internal || panics.Load() != 1 {
		t.Errorf("%v, %d panics", err, panics.Load())
	}
	if _, err := client.ShouldRateLimit(t.Context(), request(descriptor("user", "a"))); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func BenchmarkGRPC(b *testing.B) {
	client := rlsv3.NewRateLimitServiceClient(dial(b, service(b, envoy.Options{})))
	r := request(descriptor("many", "a"))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := client.ShouldRateLimit(b.Context(), r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
