package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// short is a load that is over soon.
func short(change func(*Options)) Options {
	o := Options{
		Workload: Workload{Keys: 50}, Callers: 8, Connections: 2, Rounds: 1,
		Warmup: 10 * time.Millisecond, Duration: 100 * time.Millisecond, Timeout: 10 * time.Second,
	}
	if change != nil {
		change(&o)
	}
	return o
}

func run(t *testing.T, options Options, targets ...Target) *Report {
	t.Helper()
	report, err := Run(t.Context(), targets, options)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestRun(t *testing.T) {
	for _, kind := range Kinds() {
		for _, rate := range []float64{0, 2000} {
			t.Run(fmt.Sprintf("%s at rate %v", kind, rate), func(t *testing.T) {
				var asked atomic.Uint64
				over := atomic.Bool{}
				target := serveGRPC(t, func(ctx context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
					asked.Add(1)
					headers, _ := metadata.FromIncomingContext(ctx)
					if _, ok := ctx.Deadline(); !ok || headers.Get("x-envoy-internal")[0] != "true" {
						return nil, status.Errorf(codes.InvalidArgument, "no deadline, or headers %v", headers)
					}
					code := rlsv3.RateLimitResponse_OK
					if kind == Over && over.Swap(true) {
						code = rlsv3.RateLimitResponse_OVER_LIMIT
					}
					return response(code, len(request.GetDescriptors())), nil
				})
				report := run(t, short(func(o *Options) { o.Workload = Workload{Kind: kind}; o.Workload.Keys = 20; o.Rate = rate }), target)
				m := report.Targets[0].Median
				if kind == Over {
					m.Faults = nil // the keys' first requests are allowed here only once in all
				}
				if report.Faults() != 0 {
					t.Fatalf("faults: %v", m.Examples)
				}
				if m.Calls == 0 || m.Calls > asked.Load() {
					t.Errorf("%d calls reported, the server has seen %d", m.Calls, asked.Load())
				}
				if denied := m.Denied; (kind == Over) != (denied == m.Calls) || kind != Over && m.Allowed != m.Calls {
					t.Errorf("%d allowed, %d denied of %d", m.Allowed, m.Denied, m.Calls)
				}
				if !(m.Latency.P50 > 0 && m.Latency.P50 <= m.Latency.P99 && m.Latency.P99 <= m.Latency.P999 && m.Latency.P999 <= m.Latency.Max) {
					t.Errorf("latencies %+v", m.Latency)
				}
				if (m.Lag != nil) != (rate > 0) {
					t.Errorf("lag is %v at rate %v", m.Lag, rate)
				}
				if m.Generator <= 0 {
					t.Errorf("the generator used %v us a call", m.Generator)
				}
			})
		}
	}
}

// Every wrong answer is counted, under its name and with an example.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error)
		fault   Fault
		example string
	}{
		"denies": {
			func(_ context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
				return response(rlsv3.RateLimitResponse_OVER_LIMIT, len(request.GetDescriptors())), nil
			}, FaultCode, "overall code OVER_LIMIT instead of OK",
		},
		"knows nothing": {
			func(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
				return response(rlsv3.RateLimitResponse_UNKNOWN, 1), nil
			}, FaultCode, "overall code UNKNOWN instead of OK",
		},
		"forgets statuses": {
			func(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
				return response(rlsv3.RateLimitResponse_OK, 0), nil
			}, FaultStatuses, "0 statuses instead of 1",
		},
		"does not count": {
			func(_ context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
				out := response(rlsv3.RateLimitResponse_OK, len(request.GetDescriptors()))
				out.Statuses[0].CurrentLimit = nil
				return out, nil
			}, FaultLimit, "0 of 1 statuses tell their limit, 1 did before",
		},
		"fails": {
			func(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
				return nil, status.Error(codes.Unavailable, "redis is away\n")
			}, FaultStatus, `gRPC status "14": redis is away`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var measured atomic.Bool
			target := serveGRPC(t, func(ctx context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
				if !measured.Load() {
					out, err := right(ctx, request)
					for _, status := range out.GetStatuses() {
						status.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{RequestsPerUnit: 10}
					}
					return out, err
				}
				return c.do(ctx, request)
			})
			report := run(t, short(func(o *Options) {
				o.Progress = func(p Progress) { measured.Store(p.Phase == "warming up" || p.Phase == "measuring") }
			}), target)
			m := report.Targets[0].Median
			if report.Faults() == 0 || m.Faults[c.fault] != report.Faults() {
				t.Fatalf("faults %v, want some of %s alone", m.Faults, c.fault)
			}
			if !strings.Contains(m.Examples[c.fault], c.example) {
				t.Errorf("example %q, want %q in it", m.Examples[c.fault], c.example)
			}
		})
	}
}

// A server that is wrong from the start, for want of rules perhaps, ends the run before the figures are believed.
func TestWrongFromTheStart(t *testing.T) {
	target := serveGRPC(t, func(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		return nil, status.Error(codes.Unimplemented, "what?")
	})
	if _, err := Run(t.Context(), []Target{target}, short(nil)); err == nil || !strings.Contains(err.Error(), `gRPC status "12": what?`) {
		t.Errorf("error %v", err)
	}
}

// Calls that are not answered in time are given up, by the server or by the client, and the run ends.
func TestSlowServer(t *testing.T) {
	silent := (&script{t: t, call: func(w *wire, id uint32) bool {
		if w.calls > 25 { // of the 50 keys on 2 connections
			return true
		}
		return w.reply(id, framed(serialized(t, response(1, 1))), "0")
	}}).serve()
	var calls atomic.Int64
	patient := serveGRPC(t, func(ctx context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		if calls.Add(1) > 50 {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return right(ctx, request)
	})
	for name, target := range map[string]Target{"a client gives up": silent, "a server gives up": patient} {
		t.Run(name, func(t *testing.T) {
			report := run(t, short(func(o *Options) { o.Timeout = 50 * time.Millisecond }), target)
			m := report.Targets[0].Median
			if m.Calls != 0 || m.Faults[FaultTimeout]+m.Faults[FaultStatus]+m.Faults[FaultReset] == 0 {
				t.Errorf("%d calls, faults %v", m.Calls, m.Faults)
			}
			if name == "a client gives up" && m.Faults[FaultTimeout] != report.Faults() {
				t.Errorf("faults %v, want timeouts alone", m.Faults)
			}
		})
	}
}

// When a server cannot keep up with a rate, the calls that it kept waiting show in the latencies.
func TestOpenLoopChargesWaiting(t *testing.T) {
	const each = 20 * time.Millisecond
	var calls atomic.Int64
	target := serveGRPC(t, func(ctx context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		if calls.Add(1) > 50 {
			time.Sleep(each) // the server is slow, nothing waits for it
		}
		return right(ctx, request)
	}, grpc.MaxConcurrentStreams(1))
	report := run(t, short(func(o *Options) {
		o.Connections, o.Rate, o.Warmup, o.Duration = 1, 1000, -1, 400*time.Millisecond
	}), target)
	m := report.Targets[0].Median
	// 400 calls are due, and no more than 20 can be answered.
	if report.Faults() != 0 || m.Calls > 21 || m.Unsent < 200 {
		t.Errorf("%d calls, %d unsent, faults %v", m.Calls, m.Unsent, m.Examples)
	}
	if least := 100e3; m.Latency.P50 < least {
		t.Errorf("half of all calls waited less than %v us, though most were due 100 ms before the end", m.Latency.P50)
	}
}

// A server that closes its connections now and then, as many do so that new replicas get their share, costs no call.
func TestGoAway(t *testing.T) {
	var conns atomic.Int64
	counted := &countingListener{listen(t, "tcp", "127.0.0.1:0"), &conns}
	target := serveGRPCOn(t, counted, right, grpc.KeepaliveParams(keepalive.ServerParameters{
		MaxConnectionAge: 40 * time.Millisecond, MaxConnectionAgeGrace: 20 * time.Second,
	}))
	for _, rate := range []float64{0, 1000} {
		conns.Store(0)
		report := run(t, short(func(o *Options) { o.Rate, o.Duration = rate, 400*time.Millisecond }), target)
		if m := report.Targets[0].Median; report.Faults() != 0 || m.Calls == 0 {
			t.Errorf("at rate %v: %d calls, faults %v", rate, m.Calls, m.Examples)
		}
		if conns.Load() <= 2 {
			t.Errorf("at rate %v: no connection was made anew", rate)
		}
	}
}

type countingListener struct {
	net.Listener
	accepted *atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	l.accepted.Add(1)
	return l.Listener.Accept()
}

// Calls that a GOAWAY says were not begun are made again elsewhere.
func TestGoAwayBeforeCalls(t *testing.T) {
	good := framed(serialized(t, response(1, 1)))
	var refused atomic.Int64
	target := (&script{t: t, call: func(w *wire, id uint32) bool {
		if w.number%2 == 0 && w.calls > 5 {
			refused.Add(1)
			if w.calls == 6 {
				return w.framer.WriteGoAway(id-2, http2.ErrCodeNo, nil) == nil
			}
			return true
		}
		return w.reply(id, good, "0")
	}}).serve()
	report := run(t, short(func(o *Options) { o.Connections = 1 }), target)
	if m := report.Targets[0].Median; report.Faults() != 0 || m.Calls == 0 {
		t.Errorf("%d calls, faults %v", m.Calls, m.Examples)
	}
	if refused.Load() == 0 {
		t.Error("no call was refused")
	}
}

// What servers may do by RFC 9113, and what they may not.
func TestScriptedServers(t *testing.T) {
	good := framed(serialized(t, response(1, 1)))
	primed := func(w *wire) bool { return w.calls <= 50 } // on the only connection
	for name, c := range map[string]struct {
		settled []http2.Setting
		call    func(*wire, uint32) bool
		fault   Fault // empty: none
		example string
	}{
		"resets": {call: func(w *wire, id uint32) bool {
			if primed(w) {
				return w.reply(id, good, "0")
			}
			return w.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream) == nil
		}, fault: FaultReset, example: "REFUSED_STREAM"},
		"hangs up": {call: func(w *wire, id uint32) bool {
			return w.calls%60 != 0 && w.reply(id, good, "0")
		}, fault: FaultLost, example: "closed"},
		"sends garbage": {call: func(w *wire, id uint32) bool {
			if primed(w) {
				return w.reply(id, good, "0")
			}
			return w.reply(id, framed([]byte("garbage")), "0")
		}, fault: FaultReply, example: "no RateLimitResponse"},
		"sends two messages": {call: func(w *wire, id uint32) bool {
			if primed(w) {
				return w.reply(id, good, "0")
			}
			return w.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, EndHeaders: true, BlockFragment: w.headers(":status", "200"),
			}) == nil && w.framer.WriteData(id, false, good) == nil && w.framer.WriteData(id, false, good) == nil &&
				w.framer.WriteHeaders(http2.HeadersFrameParam{
					StreamID: id, EndHeaders: true, EndStream: true, BlockFragment: w.headers("grpc-status", "0"),
				}) == nil
		}, fault: FaultReply, example: "more than one message"},
		"is a web server": {call: func(w *wire, id uint32) bool {
			if primed(w) {
				return w.reply(id, good, "0")
			}
			return w.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, EndHeaders: true, EndStream: true, BlockFragment: w.headers(":status", "404"),
			}) == nil
		}, fault: FaultStatus, example: `HTTP status "404"`},
		"forgets the trailers": {call: func(w *wire, id uint32) bool {
			if primed(w) {
				return w.reply(id, good, "0")
			}
			return w.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, EndHeaders: true, BlockFragment: w.headers(":status", "200"),
			}) == nil && w.framer.WriteData(id, true, good) == nil
		}, fault: FaultStatus, example: "without a gRPC status"},
		"answers in pieces": {call: func(w *wire, id uint32) bool {
			block := w.headers(":status", "200", "content-type", "application/grpc")
			if w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1]}) != nil ||
				w.framer.WriteContinuation(id, false, block[1:2]) != nil || w.framer.WriteContinuation(id, true, block[2:]) != nil {
				return false
			}
			for i := range good {
				if w.framer.WriteDataPadded(id, false, good[i:i+1], []byte{0, 0}) != nil {
					return false
				}
			}
			block = w.headers("grpc-status", "0")
			return w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: true, BlockFragment: block[:0]}) == nil &&
				w.framer.WriteContinuation(id, true, block) == nil
		}},
		"takes one call at a time, without a header table, and pings": {
			settled: []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}, {ID: http2.SettingHeaderTableSize, Val: 0}},
			call: func(w *wire, id uint32) bool {
				return w.framer.WritePing(false, [8]byte{1}) == nil && w.reply(id, good, "0")
			},
		},
		"changes its mind": {call: func(w *wire, id uint32) bool {
			return w.framer.WriteSettings(
				http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(1 + w.calls%7)},
				http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(w.calls % 5 * 100)},
			) == nil && w.reply(id, good, "0")
		}},
		"answers calls that nobody made": {call: func(w *wire, id uint32) bool {
			return w.reply(id+2000000, good, "0") && w.framer.WriteRSTStream(id+2000000, http2.ErrCodeCancel) == nil && w.reply(id, good, "0")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			target := (&script{t: t, settled: c.settled, call: c.call}).serve()
			report := run(t, short(func(o *Options) { o.Connections = 1 }), target)
			m := report.Targets[0].Median
			if c.fault == "" {
				if report.Faults() != 0 || m.Calls == 0 {
					t.Errorf("%d calls, faults %v", m.Calls, m.Examples)
				}
				return
			}
			if report.Faults() == 0 || m.Faults[c.fault] != report.Faults() || !strings.Contains(m.Examples[c.fault], c.example) {
				t.Errorf("faults %v, examples %v; want %s alone, %q", m.Faults, m.Examples, c.fault, c.example)
			}
		})
	}
}

func TestServersThatCannotBeLoaded(t *testing.T) {
	good := framed(serialized(t, response(1, 1)))
	closed := listen(t, "tcp", "127.0.0.1:0")
	_ = closed.Close()
	for name, c := range map[string]struct {
		target Target
		want   string
	}{
		"nobody": {Target{Address: Address{"tcp", closed.Addr().String()}}, "connect to"},
		"another protocol": {(&script{t: t, open: func(conn net.Conn) bool {
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			return false
		}}).serve(), "does not speak HTTP/2"},
		"hangs up at once": {(&script{t: t, open: func(net.Conn) bool { return false }}).serve(), "does not speak HTTP/2"},
		"a window of one byte": {(&script{
			t: t, settled: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1}},
		}).serve(), "takes 1 bytes on a new stream"},
		"hangs up at every call": {(&script{t: t, call: func(*wire, uint32) bool { return false }}).serve(), "50 calls failed before the first round"},
		"hangs up at every call but the first ones": {(&script{t: t, call: func(w *wire, id uint32) bool {
			return w.number < 2 && w.calls <= 25 && w.reply(id, good, "0")
		}}).serve(), "connections in a row"},
		"stops listening": {stopsListening(t, good), "connect to"},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := Run(t.Context(), []Target{c.target}, short(func(o *Options) { o.Duration = time.Minute }))
			if err == nil {
				t.Fatalf("a report: %+v", report.Targets[0].Median)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want %q in it", err, c.want)
			}
		})
	}
}

// stopsListening is a server that is gone after some calls.
func stopsListening(t *testing.T, good []byte) Target {
	listener := listen(t, "tcp", "127.0.0.1:0")
	s := &script{t: t, call: func(w *wire, id uint32) bool {
		return w.calls < 100 && w.reply(id, good, "0")
	}}
	s.done.Go(func() {
		for range 2 { // the two connections of a run
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.done.Go(func() { s.handle(conn, 0) })
		}
		_ = listener.Close()
	})
	t.Cleanup(func() {
		_ = listener.Close()
		s.done.Wait()
	})
	return Target{Address: Address{"tcp", listener.Addr().String()}}
}

// Servers take turns, and each has as many rounds as the other.
func TestTurns(t *testing.T) {
	a, b := serveGRPC(t, right), serveGRPC(t, right)
	a.Name, b.Name = "a", "b"
	a.Processes = []Process{{"self", os.Getpid()}}
	b.Processes = a.Processes
	var order []string
	report := run(t, short(func(o *Options) {
		o.Rounds = 3
		o.Duration = 20 * time.Millisecond
		o.Progress = func(p Progress) {
			if at := fmt.Sprint(p.Round, p.Target); p.Phase == "measuring" && (len(order) == 0 || order[len(order)-1] != at) {
				order = append(order, at)
			}
		}
	}), a, b)
	if got := strings.Join(order, " "); got != "1a 1b 2a 2b 3a 3b" {
		t.Errorf("turns %s", got)
	}
	if len(report.Targets[0].Rounds) != 3 || len(report.Targets[1].Rounds) != 3 {
		t.Fatal("rounds are missing")
	}
	ratios := report.Against("b")
	if ratios == nil || ratios.Of != "a" || len(ratios.CPU.Rounds) != 3 || report.Against("c") != nil {
		t.Fatalf("ratios %+v", ratios)
	}
	for i := range 3 {
		if want := report.Targets[0].Rounds[i].CPUTotal / report.Targets[1].Rounds[i].CPUTotal; ratios.CPU.Rounds[i] != want {
			t.Errorf("round %d: ratio %v, want %v", i, ratios.CPU.Rounds[i], want)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	target := serveGRPCOn(t, listen(t, "unix", filepath.Join(dir, "s")), right)
	if report := run(t, short(nil), target); report.Faults() != 0 || report.Targets[0].Median.Calls == 0 {
		t.Errorf("%+v", report.Targets[0].Median)
	}
}

func TestFloor(t *testing.T) {
	for _, unixSocket := range []bool{false, true} {
		floor, err := StartFloor(t.Context(), unixSocket, os.Args[0], "bench-floor")
		if err != nil {
			t.Fatal(err)
		}
		defer floor.Close()
		if floor.Target.Address.Unix() != unixSocket {
			t.Errorf("the floor listens on %s", floor.Target.Address)
		}
		for _, kind := range []Kind{Three, Over} {
			report := run(t, short(func(o *Options) { o.Workload.Kind = kind }), floor.Target)
			if m := report.Targets[0].Median; report.Faults() != 0 || m.CPU["floor"] <= 0 || m.CPUTotal != m.CPU["floor"] {
				t.Errorf("%s: CPU %v, faults %v", kind, m.CPU, m.Examples)
			}
		}
		pid := floor.Target.Processes[0].PID
		floor.Close()
		if _, err := processTime(pid); err == nil {
			t.Errorf("the floor runs on")
		}
	}
	if _, err := StartFloor(t.Context(), false, "true"); err == nil {
		t.Error("a command that is no floor is taken for one")
	}
	if _, err := StartFloor(t.Context(), false, filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a command that is not there is taken for a floor")
	}
}

func TestInterrupted(t *testing.T) {
	target := serveGRPC(t, right)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, []Target{target}, short(func(o *Options) {
		o.Duration = time.Hour
		o.Progress = func(p Progress) {
			if p.Phase == "measuring" {
				cancel()
			}
		}
	}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestProcessThatEnds(t *testing.T) {
	floor, err := StartFloor(t.Context(), false, os.Args[0], "bench-floor")
	if err != nil {
		t.Fatal(err)
	}
	defer floor.Close()
	target := serveGRPC(t, right)
	target.Processes = floor.Target.Processes
	_, err = Run(t.Context(), []Target{target}, short(func(o *Options) {
		o.Progress = func(p Progress) {
			if p.Phase == "measuring" {
				floor.Close()
			}
		}
	}))
	if err == nil || !strings.Contains(err.Error(), "processor time of floor") {
		t.Errorf("error %v", err)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	target := Target{Address: Address{"tcp", "127.0.0.1:1"}}
	remote := Target{Address: Address{"tcp", "192.0.2.1:1"}}
	for name, c := range map[string]struct {
		change  func(*Options)
		targets []Target
		want    string
	}{
		"no servers":         {nil, nil, "0 servers"},
		"a remote server":    {nil, []Target{remote}, "192.0.2.1:1 is not on this machine"},
		"callers":            {func(o *Options) { o.Callers = -1 }, []Target{target}, "-1 callers"},
		"connections":        {func(o *Options) { o.Connections, o.Callers = 1001, 2000 }, []Target{target}, "1001 connections"},
		"rate":               {func(o *Options) { o.Rate = -1 }, []Target{target}, "rate -1"},
		"a rate too low":     {func(o *Options) { o.Rate = 0.001 }, []Target{target}, "rate 0.001"},
		"duration":           {func(o *Options) { o.Duration = -1 }, []Target{target}, "duration -1ns"},
		"rounds":             {func(o *Options) { o.Rounds = 1001 }, []Target{target}, "1001 rounds"},
		"timeout":            {func(o *Options) { o.Timeout = time.Microsecond }, []Target{target}, "timeout 1µs"},
		"workload":           {func(o *Options) { o.Workload.Kind = "?" }, []Target{target}, "unknown workload"},
		"a name twice":       {nil, []Target{serveGRPC(t, right), serveGRPC(t, right)}, "two servers"},
		"an unknown code":    {nil, []Target{{Address: target.Address, Expect: Expectation{Code: "ok"}}}, `unknown code "ok"`},
		"an unknown process": {nil, []Target{{Address: target.Address, Processes: []Process{{"x", 1<<22 + 1}}}}, "no such process"},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.targets {
				if name == "a name twice" {
					c.targets[i].Name = "a"
				}
			}
			_, err := Run(t.Context(), c.targets, short(c.change))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
			if errors.Is(err, ErrRemote) != (name == "a remote server") {
				t.Errorf("ErrRemote for %v", err)
			}
		})
	}
}

// The files that Rules returns name every key of the workloads.
func TestRules(t *testing.T) {
	for _, server := range []string{"weir", "leases", "envoyproxy"} {
		text, err := Rules(server)
		if err != nil {
			t.Fatal(err)
		}
		w := Workload{}.withDefaults()
		for _, name := range []string{"domain: " + w.Domain, "key: " + w.UniformKey, "key: " + w.HotKey, "key: " + w.OverKey} {
			if !strings.Contains(text, name+"\n") {
				t.Errorf("the rules of %s have no %q", server, name)
			}
		}
	}
	if _, err := Rules("nginx"); err == nil {
		t.Error("there are rules for nginx")
	}
}

func TestFaultsAreBounded(t *testing.T) {
	var f faults
	f.add(FaultStatus, "%s", strings.Repeat("é", 1000)+"\x1b[2J")
	f.add(FaultStatus, "another")
	if text := f.examples[FaultStatus]; len([]rune(text)) > maxShown+3 || f.counts[FaultStatus] != 2 {
		t.Errorf("%d kept, %v counted", len(text), f.counts)
	}
	if text := shown("a\x1b[2J\r\nb"); text != "a [2J  b" {
		t.Errorf("shown as %q", text)
	}
	var sum faults
	sum.merge(&f)
	sum.merge(&faults{map[Fault]uint64{FaultStatus: 3, FaultLost: 1}, map[Fault]string{FaultStatus: "x", FaultLost: "y"}})
	if want := map[Fault]uint64{FaultStatus: 5, FaultLost: 1}; !maps.Equal(sum.counts, want) || sum.examples[FaultLost] != "y" {
		t.Errorf("sum %v", sum)
	}
}
