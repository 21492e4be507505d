package bench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/test/servers"
)

// through is a short load that goes through a real Envoy.
func through(t *testing.T, kind Kind) Options {
	t.Setenv("TMPDIR", t.TempDir())
	return Options{
		Workload: Workload{Kind: kind, Keys: 40}, Envoy: &Envoy{Path: servers.FindEnvoy(t)}, Connections: 8, Rounds: 1,
		Warmup: 10 * time.Millisecond, Duration: 200 * time.Millisecond, Timeout: 10 * time.Second,
	}
}

func TestThroughEnvoy(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			options := through(t, kind)
			var asked, primed atomic.Int64
			var wrong atomic.Pointer[string]
			target := serveGRPC(t, func(_ context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
				asked.Add(1)
				var text []string
				for _, descriptor := range request.GetDescriptors() {
					for _, entry := range descriptor.GetEntries() {
						text = append(text, entry.GetKey()+"="+entry.GetValue())
					}
				}
				all := request.GetDomain() + " " + strings.Join(text, " ")
				if len(all) != len(map[Kind]string{
					Uniform: "bench uniform=00000000", Hot: "bench hot=00000000", Over: "bench over=00000000",
					Three: "bench hot=00000000 uniform=00000000 uniform=00000000",
				}[kind]) {
					wrong.Store(&all)
				}
				code := rlsv3.RateLimitResponse_OK
				if kind == Over && primed.Add(1) > int64(options.Workload.Keys) {
					code = rlsv3.RateLimitResponse_OVER_LIMIT
				}
				return response(code, len(request.GetDescriptors())), nil
			})
			report := run(t, options, target)
			m := report.Targets[0].Median
			if report.Faults() != 0 || m.Calls == 0 || m.Calls > uint64(asked.Load()) {
				t.Fatalf("%d calls of %d, faults %v", m.Calls, asked.Load(), m.Examples)
			}
			if text := wrong.Load(); text != nil {
				t.Errorf("Envoy asked %q", *text)
			}
			if (kind == Over) != (m.Denied == m.Calls) || kind != Over && m.Allowed != m.Calls {
				t.Errorf("%d allowed, %d denied of %d", m.Allowed, m.Denied, m.Calls)
			}
			if m.Envoy <= 0 || m.CPUTotal != 0 || m.Latency.P50 <= 0 || report.Load.Envoy != 1 || report.Load.Connections != 8 {
				t.Errorf("reported %+v of %+v", m, report.Load)
			}
			var text strings.Builder
			if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "; through Envoy with 1 worker on 8 connections;") {
				t.Errorf("%v: %s", err, text.String())
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
				t.Errorf("%v is left: %v", left, err)
			}
		})
	}
}

// A server that fails is not one that allows, and one that answers wrongly is found out.
func TestFaultsThroughEnvoy(t *testing.T) {
	failing := serveGRPC(t, func(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		return nil, status.Error(codes.Unavailable, "no")
	})
	var calls atomic.Int64
	denying := serveGRPC(t, func(_ context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		code := rlsv3.RateLimitResponse_OK
		if calls.Add(1) > 40 {
			code = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		return response(code, len(request.GetDescriptors())), nil
	})
	if _, err := Run(t.Context(), []Target{failing}, through(t, Uniform)); err == nil || !strings.Contains(err.Error(), "HTTP status 500") {
		t.Errorf("a server that fails: %v", err)
	}
	report := run(t, through(t, Uniform), denying)
	if m := report.Targets[0].Median; m.Faults[FaultCode] == 0 || m.Calls != 0 {
		t.Errorf("a server that denies: %+v", m)
	}
}

func TestEnvoyThatDoesNotStart(t *testing.T) {
	target := serveGRPC(t, right)
	script := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho broken >&2\nexit 3\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		script:                                "envoy ended while starting (exit status 3\nsee whether it is an Envoy of 1.40 or newer); it said: broken",
		filepath.Join(t.TempDir(), "nothing"): "start Envoy",
	} {
		options := through(t, Uniform)
		options.Envoy.Path = path
		if _, err := Run(t.Context(), []Target{target}, options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
			t.Errorf("%v is left: %v", left, err)
		}
	}
	for want, change := range map[string]func(*Options){
		"closed loop alone":   func(o *Options) { o.Rate = 5 },
		"65 workers of Envoy": func(o *Options) { o.Envoy.Concurrency = 65 },
	} {
		options := through(t, Uniform)
		change(&options)
		if _, err := Run(t.Context(), []Target{target}, options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// An interrupted run ends its Envoy; and an Envoy that ends, the run.
func TestEnvoyEnds(t *testing.T) {
	target := serveGRPC(t, right)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	options := through(t, Uniform)
	options.Duration = time.Minute
	options.Progress = func(p Progress) {
		if p.Phase == "measuring" {
			stop()
		}
	}
	if _, err := Run(ctx, []Target{target}, options); err == nil || ctx.Err() == nil {
		t.Errorf("an interrupted run: %v", err)
	}
	p, err := startEnvoy(t.Context(), *options.Envoy, target.Address, options.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	client := &httpClient{address: p.address, timeout: time.Second, workload: options.Workload}
	if err := client.dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.close()
	if err := syscall.Kill(p.pid, 0); err == nil {
		t.Error("Envoy runs on")
	}
	for range maxBarren + 1 {
		if err = client.ask(t.Context(), expectation{}, 0, 0); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("without Envoy a client goes on")
	}
}
