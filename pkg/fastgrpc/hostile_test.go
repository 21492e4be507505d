package fastgrpc_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/pkg/fastgrpc"
)

// blocking returns a method whose calls wait until release is closed, and the number of those it has been given.
func blocking(release <-chan struct{}) (fastgrpc.Method, *atomic.Int64) {
	var handled atomic.Int64
	return fastgrpc.Method{Path: waitPath, Waits: true, Handler: func(ctx context.Context, calls []fastgrpc.Call) {
		if !fastgrpc.Wait(ctx) {
			return
		}
		handled.Add(int64(len(calls)))
		<-release
		echo(ctx, calls)
	}}, &handled
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		method, _ := blocking(release)
		_, listener, stop := startPipes(fastgrpc.Options{MaxConcurrentStreams: 2}, method)
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		p.ask(1, waitPath, "a")
		p.flush()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond) // the reading is handed over
		p.ask(3, waitPath, "b")
		// A call that was cancelled while it is handled still counts: else a client could have any number under way.
		p.check(p.write.WriteRSTStream(1, http2.ErrCodeCancel))
		p.ask(5, waitPath, "c")
		p.flush()
		if got := p.awaitEnd(5); got.kind != http2.FrameRSTStream || got.code != http2.ErrCodeRefusedStream {
			t.Errorf("a call too many was answered %+v", got)
		}
		close(release)
		p.awaitEnd(3)
		p.ask(7, waitPath, "d")
		p.flush()
		if got := p.awaitEnd(7); got.fields["grpc-status"] != "0" {
			t.Errorf("a call after that was answered %+v", got)
		}
	})
}

// floods are what a connection may not do at will, and how often a test does it at once.
var floods = []struct {
	name  string
	times int
	begin func(p *peer)
	once  func(p *peer, i int)
}{
	{"rapid reset", 12000, nil, func(p *peer, i int) {
		p.ask(uint32(2*i+1), echoPath, "x")
		p.check(p.write.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel))
	}},
	{"ping", 3000, nil, func(p *peer, _ int) { p.check(p.write.WritePing(false, [8]byte{})) }},
	{"settings", 3000, nil, func(p *peer, _ int) { p.check(p.write.WriteSettings()) }},
	{"priority", 3000, nil, func(p *peer, _ int) { p.check(p.write.WritePriority(1, http2.PriorityParam{StreamDep: 3})) }},
	{"window update", 3000, nil, func(p *peer, _ int) { p.check(p.write.WriteWindowUpdate(0, 1)) }},
	{"unknown frame", 3000, nil, func(p *peer, _ int) { p.check(p.write.WriteRawFrame(0xf0, 0, 0, nil)) }},
	{"empty data", 3000, func(p *peer) { p.headers(1, false, p.call(echoPath)) }, func(p *peer, _ int) {
		p.check(p.write.WriteData(1, false, nil))
	}},
	{"data on a closed stream", 3000, func(p *peer) { p.ask(1, echoPath, "x") }, func(p *peer, i int) {
		p.headers(uint32(2*i+3), true, p.block(":method", "GET", ":scheme", "http", ":path", "/"))
		p.check(p.write.WriteData(uint32(2*i+3), false, nil))
	}},
	{"continuation", 30, func(p *peer) {
		p.check(p.write.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.call(echoPath)}))
	}, func(p *peer, _ int) { p.check(p.write.WriteContinuation(1, false, nil)) }},
	{"long continuation", 8, func(p *peer) {
		p.check(p.write.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.call(echoPath)}))
	}, func(p *peer, _ int) { p.check(p.write.WriteContinuation(1, false, make([]byte, 16000))) }},
}

func TestFloodsEndTheConnection(t *testing.T) {
	for _, flood := range floods {
		t.Run(flood.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, listener, stop := startPipes(fastgrpc.Options{})
				defer stop()
				p := newPeer(t, listener.dial())
				p.listen()
				if flood.begin != nil {
					flood.begin(p)
				}
				for i := range flood.times {
					flood.once(p, i)
				}
				p.flush()
				if code := p.awaitGoAway(); code != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("the connection ended with %v", code)
				}
				p.awaitClose()
				synctest.Wait()
				if n := server.Connections(); n != 0 {
					t.Errorf("%d connections are left", n)
				}
			})
		})
	}
}

// A client may do all of that now and then.
func TestNoFloodBySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{})
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		for second := range 5 {
			for range 1000 {
				p.check(p.write.WritePing(false, [8]byte{}))
			}
			p.ask(uint32(2*second+1), echoPath, "x")
			p.flush()
			if got := p.awaitEnd(uint32(2*second + 1)); got.fields["grpc-status"] != "0" {
				t.Fatalf("second %d: %+v", second, got)
			}
			time.Sleep(time.Second + time.Millisecond)
		}
	})
}

func TestHeaderListIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{MaxHeaderListBytes: 1000})
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		p.ask(1, echoPath, "x", "x-large", strings.Repeat("a", 1000))
		p.ask(3, echoPath, "y")
		p.flush()
		if got := p.awaitEnd(1); got.fields[":status"] != "431" || got.fields["grpc-status"] != "8" {
			t.Errorf("answered %+v", got)
		}
		if got := p.awaitEnd(3); got.fields["grpc-status"] != "0" {
			t.Errorf("the next call was answered %+v", got)
		}
	})
}

// A block of 16 KiB stands for 64 MiB of fields.
func TestHeaderBomb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{})
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		p.ask(1, echoPath, "x", "x-bomb", strings.Repeat("a", 3900))
		p.flush()
		p.awaitEnd(1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const times = 20
		for i := range times {
			p.headers(uint32(2*i+3), false, []byte(strings.Repeat("\xbe", 16000)))
			p.flush()
			if got := p.awaitEnd(uint32(2*i + 3)); got.fields["grpc-status"] == "0" {
				t.Fatalf("answered %+v", got)
			}
		}
		runtime.ReadMemStats(&after)
		if size := after.TotalAlloc - before.TotalAlloc; size > times*200<<10 {
			t.Errorf("%d bytes were allocated", size)
		}
	})
}

func TestSlowPeers(t *testing.T) {
	options := fastgrpc.Options{HandshakeTimeout: 3 * time.Second, RequestTimeout: 5 * time.Second}
	for name, test := range map[string]struct {
		send  func(p *peer)
		least time.Duration
		most  time.Duration
	}{
		"nothing":          {func(p *peer) { p.out.Reset() }, 3 * time.Second, 6 * time.Second},
		"half the preface": {func(p *peer) { p.out.Truncate(10) }, 3 * time.Second, 6 * time.Second},
		"half a frame":     {func(p *peer) { p.out.Write([]byte{0, 0, 8, 6}) }, 5 * time.Second, 9 * time.Second},
		"half a header block": {func(p *peer) {
			p.check(p.write.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.call(echoPath)}))
		}, 5 * time.Second, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, listener, stop := startPipes(options)
				defer stop()
				p := newPeer(t, listener.dial())
				p.listen()
				begun := time.Now()
				test.send(p)
				p.flush()
				p.awaitClose()
				if after := time.Since(begun); after < test.least || after > test.most {
					t.Errorf("the connection was closed after %v", after)
				}
			})
		})
	}
}

func TestSlowRequestIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{RequestTimeout: 5 * time.Second})
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		p.headers(1, false, p.call(echoPath))
		p.flush()
		begun := time.Now()
		if got := p.awaitEnd(1); got.code != http2.ErrCodeCancel || time.Since(begun) > 9*time.Second {
			t.Errorf("%+v after %v", got, time.Since(begun))
		}
		p.ask(3, echoPath, "x")
		p.flush()
		if got := p.awaitEnd(3); got.fields["grpc-status"] != "0" {
			t.Errorf("the next call was answered %+v", got)
		}
	})
}

func TestSilentPeerIsAskedAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{KeepaliveTime: 10 * time.Second, KeepaliveTimeout: 5 * time.Second})
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		p.flush()
		ping := func(f frame) bool { return f.kind == http2.FramePing && !f.flags.Has(http2.FlagPingAck) }
		for range 3 {
			got := p.await("a ping", ping)
			p.check(p.write.WritePing(true, [8]byte(got.payload)))
			p.flush()
		}
		p.await("a ping", ping)
		begun := time.Now()
		p.awaitClose()
		if after := time.Since(begun); after < 5*time.Second || after > 8*time.Second {
			t.Errorf("closed after %v", after)
		}
	})
}

func TestIdleAndOldConnectionsEnd(t *testing.T) {
	for name, options := range map[string]fastgrpc.Options{
		"idle": {MaxConnectionIdle: 20 * time.Second},
		"old":  {MaxConnectionAge: 20 * time.Second, MaxConnectionAgeGrace: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, listener, stop := startPipes(options)
				defer stop()
				p := newPeer(t, listener.dial())
				p.listen()
				begun := time.Now()
				p.flush()
				if code := p.awaitGoAway(); code != http2.ErrCodeNo {
					t.Errorf("ended with %v", code)
				}
				if after := time.Since(begun); after < 17*time.Second || after > 24*time.Second {
					t.Errorf("told to go after %v", after)
				}
				// What was sent before the peer knew is answered.
				p.ask(1, echoPath, "x")
				p.check(p.write.WritePing(true, [8]byte([]byte("goodbye."))))
				p.flush()
				if got := p.awaitEnd(1); got.fields["grpc-status"] != "0" {
					t.Errorf("answered %+v", got)
				}
				p.awaitClose()
			})
		})
	}
}

func TestGraceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		method, _ := blocking(release)
		_, listener, stop := startPipes(fastgrpc.Options{MaxConnectionAge: 10 * time.Second, MaxConnectionAgeGrace: 5 * time.Second}, method)
		defer stop()
		defer close(release)
		p := newPeer(t, listener.dial())
		p.listen()
		p.ask(1, waitPath, "x")
		p.flush()
		p.awaitGoAway()
		begun := time.Now()
		p.awaitClose()
		if after := time.Since(begun); after < 4*time.Second || after > 9*time.Second {
			t.Errorf("closed %v after it was announced", after)
		}
	})
}

func TestPeerThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, listener, stop := startPipes(fastgrpc.Options{WriteTimeout: 4 * time.Second})
		defer stop()
		p := newPeer(t, listener.dial())
		begun := time.Now()
		p.ask(1, echoPath, "x")
		p.flush()
		_, err := p.conn.Write([]byte{0}) // nobody reads that: the server waits for its own answer to be read
		if after := time.Since(begun); err == nil || after < 4*time.Second || after > 8*time.Second {
			t.Errorf("closed after %v: %v", after, err)
		}
		synctest.Wait()
		if n := server.Connections(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
}

func TestAnswersWithoutWindowAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{})
		defer stop()
		p := newPeer(t, listener.dial(), http2.Setting{ID: http2.SettingInitialWindowSize})
		p.listen()
		for i := range 400 {
			p.ask(uint32(2*i+1), echoPath, strings.Repeat("x", 15000))
			p.flush()
		}
		if code := p.awaitGoAway(); code != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("ended with %v", code)
		}
	})
}

func TestStuckAnswerIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{WriteTimeout: 4 * time.Second})
		defer stop()
		p := newPeer(t, listener.dial(), http2.Setting{ID: http2.SettingInitialWindowSize})
		p.listen()
		p.ask(1, echoPath, "x")
		p.flush()
		if got := p.awaitEnd(1); got.code != http2.ErrCodeCancel {
			t.Errorf("%+v", got)
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, listener, stop := startPipes(fastgrpc.Options{MaxConnections: 2})
		defer stop()
		var open []net.Conn
		for range 2 {
			open = append(open, listener.dial())
		}
		third := listener.dial()
		if _, err := third.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // a pipe returns exactly this
			t.Errorf("the third connection: %v", err)
		}
		if n := server.Connections(); n != 2 {
			t.Errorf("%d connections", n)
		}
		_ = open[0].Close()
		synctest.Wait()
		p := newPeer(t, listener.dial())
		p.listen()
		p.ask(1, echoPath, "x")
		p.flush()
		p.awaitEnd(1)
	})
}

func TestHTTP1IsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{})
		defer stop()
		connection := listener.dial()
		go func() { _, _ = io.WriteString(connection, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n") }()
		answer, err := io.ReadAll(connection)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 Bad Request\r\n") || !strings.Contains(string(answer), "gRPC") {
			t.Errorf("answered %q, %v", answer, err)
		}
		_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		if len(body) != 64 {
			t.Errorf("the body has %d bytes", len(body))
		}
	})
}
