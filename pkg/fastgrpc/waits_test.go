package fastgrpc_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/pkg/fastgrpc"
)

// While calls wait, pings are answered, and so are calls that do not wait.
func TestConnectionIsReadWhileCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		method, _ := blocking(release)
		_, listener, stop := startPipes(fastgrpc.Options{}, method, fastgrpc.Method{Path: echoPath, Handler: echo})
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		p.ask(1, waitPath, "slow")
		p.ask(3, echoPath, "quick")
		p.flush()
		if got := p.awaitEnd(3); got.fields["grpc-status"] != "0" {
			t.Errorf("answered %+v", got)
		}
		begun := time.Now()
		p.check(p.write.WritePing(false, [8]byte{1}))
		p.flush()
		p.await("the ping's answer", func(f frame) bool { return f.kind == http2.FramePing && f.flags.Has(http2.FlagPingAck) })
		p.ask(5, echoPath, "quick")
		p.flush()
		p.awaitEnd(5)
		if took := time.Since(begun); took > 20*time.Millisecond {
			t.Errorf("that took %v", took)
		}
		close(release)
		p.awaitEnd(1)
	})
}

// What was cancelled before its handler was called is never handled.
func TestCancelledCallsAreNotHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var mu sync.Mutex
		handled := make(map[string]int)
		method := fastgrpc.Method{Path: waitPath, Waits: true, Handler: func(ctx context.Context, calls []fastgrpc.Call) {
			if !fastgrpc.Wait(ctx) {
				return
			}
			mu.Lock()
			for i := range calls {
				handled[string(calls[i].Request)]++
			}
			mu.Unlock()
			<-release
			echo(ctx, calls)
		}}
		_, listener, stop := startPipes(fastgrpc.Options{HandlerTimeout: time.Hour}, method)
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		p.ask(1, waitPath, "in one burst")
		p.check(p.write.WriteRSTStream(1, http2.ErrCodeCancel))
		p.flush()
		for i := range 4 { // all flights
			p.ask(uint32(2*i+3), waitPath, "flight "+strconv.Itoa(i))
			p.flush()
			time.Sleep(50 * time.Millisecond)
		}
		p.ask(11, waitPath, "queued, cancelled")
		p.ask(13, waitPath, "queued")
		p.flush()
		p.ask(15, waitPath, "queued too")
		p.check(p.write.WriteRSTStream(11, http2.ErrCodeCancel))
		p.flush()
		synctest.Wait()
		close(release)
		for id := uint32(3); id <= 15; id += 2 {
			if id == 11 {
				continue
			}
			got := p.await("an answer", func(f frame) bool { return f.kind == http2.FrameHeaders && f.flags.Has(http2.FlagHeadersEndStream) })
			if got.fields["grpc-status"] != "0" {
				t.Errorf("answered %+v", got)
			}
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(handled) != 6 || handled["in one burst"]+handled["queued, cancelled"] != 0 {
			t.Errorf("handled %v", handled)
		}
	})
}

// A call's deadline bounds its handler, and cuts no other call's.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		given := make(map[string]time.Duration)
		method := fastgrpc.Method{Path: waitPath, Waits: true, Handler: func(ctx context.Context, calls []fastgrpc.Call) {
			if !fastgrpc.Wait(ctx) {
				return
			}
			begun := time.Now()
			derived, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			<-derived.Done()
			mu.Lock()
			defer mu.Unlock()
			for i := range calls {
				given[string(calls[i].Request)] = time.Since(begun)
			}
			if ctx.Err() == nil {
				t.Error("the context has no error")
			}
			echo(ctx, calls)
		}}
		_, listener, stop := startPipes(fastgrpc.Options{HandlerTimeout: time.Second}, method)
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		p.ask(1, waitPath, "none")
		p.ask(3, waitPath, "short", "grpc-timeout", "20m")
		p.ask(5, waitPath, "a bit more", "grpc-timeout", "21000u")
		p.ask(7, waitPath, "long", "grpc-timeout", "99999999H")
		p.ask(9, waitPath, "expired", "grpc-timeout", "0n")
		p.flush()
		for range 4 {
			p.await("an answer", func(f frame) bool { return f.flags.Has(http2.FlagHeadersEndStream) && f.kind == http2.FrameHeaders })
		}
		p.await("an answer", func(f frame) bool { return f.flags.Has(http2.FlagHeadersEndStream) && f.kind == http2.FrameHeaders })
		mu.Lock()
		defer mu.Unlock()
		for name, want := range map[string]time.Duration{
			"short": 20 * time.Millisecond, "a bit more": 20 * time.Millisecond, "none": time.Second, "long": time.Second,
		} {
			if got := given[name]; got.Round(time.Microsecond) != want {
				t.Errorf("%s was given %v, want %v", name, got, want)
			}
		}
	})
}

func TestPanicIsOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caught := make(chan any, 1)
		_, listener, stop := startPipes(fastgrpc.Options{Panicked: func(value any, _ []byte) { caught <- value }},
			fastgrpc.Method{Path: waitPath, Handler: func(context.Context, []fastgrpc.Call) { panic("oops") }},
			fastgrpc.Method{Path: echoPath, Handler: echo})
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		p.ask(1, waitPath, "x")
		p.ask(3, echoPath, "x")
		p.flush()
		ends := map[uint32]string{}
		for range 2 {
			got := p.await("an answer", func(f frame) bool { return f.flags.Has(http2.FlagHeadersEndStream) && f.kind == http2.FrameHeaders })
			ends[got.stream] = got.fields["grpc-status"]
		}
		if ends[1] != "13" || ends[3] != "0" || <-caught != "oops" {
			t.Errorf("answered %v", ends)
		}
	})
}

// Answers fit any windows, also ones that shrink below 0, and any header table.
func TestWindowsAndTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{})
		defer stop()
		p := newPeer(t, listener.dial(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10},
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		p.listen()
		text := strings.Repeat("0123456789", 10)
		p.ask(1, echoPath, text)
		p.flush()
		var got []byte
		data := func(f frame) bool { return f.kind == http2.FrameData }
		got = append(got, p.await("data", data).payload...)
		if len(got) != 10 {
			t.Fatalf("%d bytes came for a window of 10", len(got))
		}
		p.check(p.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})) // now at -7
		p.check(p.write.WriteWindowUpdate(1, 7))                                                  // at 0
		p.flush()
		synctest.Wait()
		p.check(p.write.WriteWindowUpdate(1, 1))
		p.flush()
		if more := p.await("data", data).payload; len(more) != 1 {
			t.Errorf("%d bytes came for a window of 1", len(more))
		} else {
			got = append(got, more...)
		}
		p.check(p.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096}))
		p.flush()
		got = append(got, p.await("data", data).payload...)
		if want := string(message(text)); string(got) != want {
			t.Errorf("got %q", got)
		}
		if end := p.awaitEnd(1); end.fields["grpc-status"] != "0" {
			t.Errorf("answered %+v", end)
		}
		for i, size := range []uint32{4096, 100, 40, 0, 4096, 1 << 20} {
			id := uint32(2*i + 3)
			p.check(p.write.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: size}))
			p.ask(id, echoPath, "x")
			p.flush()
			head := p.await("a header", func(f frame) bool { return f.kind == http2.FrameHeaders && f.stream == id })
			if end := p.awaitEnd(id); end.fields["grpc-status"] != "0" || head.fields["content-type"] != "application/grpc" {
				t.Errorf("with a table of %d: %+v %+v", size, head, end)
			}
		}
	})
}

// All connection's window is used up: answers wait in their order.
func TestConnectionWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, listener, stop := startPipes(fastgrpc.Options{})
		defer stop()
		p := newPeer(t, listener.dial(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		p.listen()
		for i := range 8 { // 80,040 bytes of answers for 65,535 of window
			p.ask(uint32(2*i+1), echoPath, strings.Repeat("x", 10000))
			p.flush()
		}
		for i := range 6 {
			p.awaitEnd(uint32(2*i + 1))
		}
		synctest.Wait()
		p.check(p.write.WriteRSTStream(13, http2.ErrCodeCancel))
		p.check(p.write.WriteWindowUpdate(0, 1<<20))
		p.flush()
		if end := p.awaitEnd(15); end.fields["grpc-status"] != "0" {
			t.Errorf("answered %+v", end)
		}
	})
}

// What a client may do with a request's frames.
func TestFraming(t *testing.T) {
	frames := map[string]func(p *peer){
		"several DATA frames": func(p *peer) {
			p.headers(1, false, p.call(echoPath))
			for _, part := range [][]byte{{0}, {0, 0}, {0, 4, 'a'}, {'b', 'c'}, {}} {
				p.check(p.write.WriteData(1, false, part))
			}
			p.check(p.write.WriteData(1, true, []byte("d")))
		},
		"END_STREAM alone": func(p *peer) {
			p.headers(1, false, p.call(echoPath))
			p.check(p.write.WriteData(1, false, message("abcd")))
			p.check(p.write.WriteData(1, true, nil))
		},
		"trailers": func(p *peer) {
			p.headers(1, false, p.call(echoPath))
			p.check(p.write.WriteData(1, false, message("abcd")))
			p.headers(1, true, p.block("x-checksum", "1"))
		},
		"padding": func(p *peer) {
			p.check(p.write.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: p.call(echoPath), EndHeaders: true, PadLength: 100,
				Priority: http2.PriorityParam{StreamDep: 3, Weight: 9},
			}))
			p.check(p.write.WriteDataPadded(1, true, message("abcd"), make([]byte, 200)))
		},
		"CONTINUATION": func(p *peer) {
			block := p.call(echoPath, "x-one", "1", "x-two", "2")
			p.check(p.write.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:7]}))
			p.check(p.write.WriteContinuation(1, false, block[7:7]))
			p.check(p.write.WriteContinuation(1, false, block[7:20]))
			p.check(p.write.WriteContinuation(1, true, block[20:]))
			p.check(p.write.WriteData(1, true, message("abcd")))
		},
		"content-length": func(p *peer) { p.ask(1, echoPath, "abcd", "content-length", "9") },
		"gzip, unused":   func(p *peer) { p.ask(1, echoPath, "abcd", "grpc-encoding", "gzip") },
		"a new table size": func(p *peer) {
			p.encoder.SetMaxDynamicTableSize(64)
			p.ask(1, echoPath, "abcd")
		},
	}
	for name, send := range frames {
		for _, bytewise := range []bool{false, true} {
			t.Run(name+" "+strconv.FormatBool(bytewise), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, listener, stop := startPipes(fastgrpc.Options{})
					defer stop()
					p := newPeer(t, listener.dial())
					p.listen()
					send(p)
					p.ask(3, echoPath, "after")
					if bytewise {
						for _, b := range p.out.Bytes() {
							if _, err := p.conn.Write([]byte{b}); err != nil {
								t.Fatal(err)
							}
						}
						p.out.Reset()
					}
					p.flush()
					for _, want := range []string{"abcd", "after"} {
						got := p.await("an answer", func(f frame) bool { return f.kind == http2.FrameData })
						if string(got.payload) != string(message(want)) {
							t.Errorf("got %q", got.payload)
						}
					}
				})
			})
		}
	}
}

// What is refused, and how.
func TestRefusals(t *testing.T) {
	compressed := append([]byte{1}, message("abcd")[1:]...)
	for name, test := range map[string]struct {
		fields []string // path first
		data   []byte
		want   map[string]string
	}{
		"gzip": {
			[]string{echoPath, "grpc-encoding", "gzip"},
			compressed,
			map[string]string{":status": "200", "grpc-status": "12", "grpc-accept-encoding": "identity"},
		},
		"compressed by nothing": {[]string{echoPath}, compressed, map[string]string{"grpc-status": "13"}},
		"unknown service":       {[]string{"/other.Service/Call"}, message(""), map[string]string{"grpc-status": "12", "grpc-message": "unknown service other.Service"}},
		"unknown method": {
			[]string{"/test.Echo/%"},
			message(""),
			map[string]string{"grpc-status": "12", "grpc-message": "unknown method %25 for service test.Echo"},
		},
		"no method":       {[]string{"/"}, message(""), map[string]string{"grpc-status": "12"}},
		"bad timeout":     {[]string{echoPath, "grpc-timeout", "soon"}, message(""), map[string]string{":status": "400", "grpc-status": "13"}},
		"no message":      {[]string{echoPath}, nil, map[string]string{"grpc-status": "13"}},
		"half a message":  {[]string{echoPath}, message("abcd")[:7], map[string]string{"grpc-status": "13"}},
		"two messages":    {[]string{echoPath}, append(message("a"), message("b")...), map[string]string{"grpc-status": "13"}},
		"a large message": {[]string{echoPath}, []byte{0, 0x7f, 0, 0, 0, 'x'}, map[string]string{"grpc-status": "8"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, listener, stop := startPipes(fastgrpc.Options{})
				defer stop()
				p := newPeer(t, listener.dial())
				p.listen()
				p.headers(1, false, p.call(test.fields[0], test.fields[1:]...))
				p.check(p.write.WriteData(1, true, test.data))
				p.flush()
				got := p.awaitEnd(1)
				for field, want := range test.want {
					if got.fields[field] != want {
						t.Errorf("%s is %q, want %q", field, got.fields[field], want)
					}
				}
				p.ask(3, echoPath, "after")
				p.flush()
				if after := p.awaitEnd(3); after.fields["grpc-status"] != "0" {
					t.Errorf("the next call was answered %+v", after)
				}
			})
		})
	}
}
