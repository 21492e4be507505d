package main

import (
	"context"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/pkg/bench"
)

// flaky fails every tenth call.
type flaky struct {
	rlsv3.UnimplementedRateLimitServiceServer
	calls atomic.Int64
}

func (f *flaky) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	if f.calls.Add(1)%10 == 0 {
		return nil, status.Error(codes.Unavailable, "the tenth")
	}
	return &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses:    []*rlsv3.RateLimitResponse_DescriptorStatus{{Code: rlsv3.RateLimitResponse_OK}},
	}, nil
}

// A server that fails some of its calls is measured up to a share of them, which the page tells.
func TestFailuresUpToAShare(t *testing.T) {
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	service := new(flaky)
	rlsv3.RegisterRateLimitServiceServer(server, service)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	defer served.Wait()
	defer server.Stop()
	address, err := bench.ParseAddress(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f := &field{targets: map[contestant]bench.Target{weirMemory: {Name: string(weirMemory), Address: address}}}
	one := scene{"one", "One", []contestant{weirMemory}, bench.Options{
		Workload: bench.Workload{Kind: bench.Hot}, Callers: 4, Connections: 1, // one key: only the first call is made before the rounds
		Rounds: 1, Warmup: 10 * time.Millisecond, Duration: 200 * time.Millisecond,
	}}

	report, err := measure(t.Context(), f, one, 0.5, discard(t))
	if err != nil {
		t.Fatalf("a tenth failed, a half may: %v", err)
	}
	text := tables(results{Scenes: []sceneResult{{Name: one.name, Title: one.title, Report: report}}})
	if want := "|\n\nNot in the figures: of weir, memory " + failuresOf(report.Targets[0]).String(); !strings.Contains(text, want) {
		t.Errorf("%q is not in:\n%s", want, text)
	}
	service.calls.Store(0) // the call that is made before the rounds must not fail
	_, err = measure(t.Context(), f, one, 0.001, discard(t))
	if err == nil || !strings.HasPrefix(err.Error(), "One: of weir, memory ") || !strings.HasSuffix(err.Error(), ": figures stand up to 0.001 (-faults)") {
		t.Errorf("a tenth failed, a thousandth may: error %v", err)
	}
}

func TestBear(t *testing.T) {
	failing := func(name contestant, calls uint64, faults map[bench.Fault]uint64) *bench.TargetReport {
		target := flat(name, 20)
		target.Median = &bench.Round{Calls: calls, Faults: faults}
		return target
	}
	some := failing(weirRedis, 9990, map[bench.Fault]uint64{bench.FaultTimeout: 7, bench.FaultReset: 3})
	report := &bench.Report{Targets: []*bench.TargetReport{failing(echo, 1_000_000, nil), some}}
	if got := failuresOf(some); got.share() != 0.001 || got.String() != "10 of 10000 calls failed (3 reset, 7 timeout)" {
		t.Errorf("%v, a share of %v", got, got.share())
	}
	if err := bear(report, 0.001); err != nil {
		t.Errorf("exactly the bound: %v", err)
	}
	const want = "of weir, Redis 10 of 10000 calls failed (3 reset, 7 timeout), a share of 0.001: figures stand up to 0.0009 (-faults)"
	if err := bear(report, 0.0009); err == nil || err.Error() != want {
		t.Errorf("above the bound: error %v, want %s", err, want)
	}
	// Ten calls that all failed are lost among a million, but they are all that this server had.
	report.Targets[1] = failing(weirRedis, 0, map[bench.Fault]uint64{bench.FaultTimeout: 10})
	if err := bear(report, 0.001); err == nil {
		t.Error("a server that answers nothing is measured")
	}
	if err := bear(report, 1); err != nil {
		t.Errorf("any may fail: %v", err)
	}
	var out strings.Builder
	noteFailures(&out, &bench.Report{Targets: []*bench.TargetReport{failing(echo, 0, nil)}})
	if out.Len() > 0 {
		t.Errorf("nothing failed: %q", out.String())
	}
	for _, share := range []float64{-0.1, 1.1, math.NaN()} {
		if err := run(t.Context(), settings{faults: share}, discard(t), discard(t)); err == nil || !strings.Contains(err.Error(), "-faults") {
			t.Errorf("-faults %v: error %v", share, err)
		}
	}
}
