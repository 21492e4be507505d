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

// mixed answers calls whose text begins with "quick" at once, and waits for release with the others. It returns how often each
// call was told to be answered by it after the wait.
func mixed(release <-chan struct{}) (fastgrpc.Method, func() map[string]int) {
	var mu sync.Mutex
	handled := make(map[string]int)
	method := fastgrpc.Method{Path: waitPath, Waits: true, Handler: func(ctx context.Context, calls []fastgrpc.Call) {
		slow := false
		for i := range calls {
			if strings.HasPrefix(string(calls[i].Request), "quick") {
				echo(ctx, calls[i:i+1])
				calls[i].Done = true
			} else {
				slow = true
			}
		}
		if !slow || !fastgrpc.Wait(ctx) {
			return
		}
		<-release
		mu.Lock()
		defer mu.Unlock()
		for i := range calls {
			if !calls[i].Done {
				handled[string(calls[i].Request)]++
				echo(ctx, calls[i:i+1])
			}
		}
	}}
	return method, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return handled
	}
}

// Calls that need not wait are answered while others of their own burst wait, in whatever order and with whatever deadlines
// they came.
func TestBurstIsNotHeldUpByCallsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		method, handled := mixed(release)
		answered := make(map[string]int)
		var mu sync.Mutex
		_, listener, stop := startPipes(fastgrpc.Options{Answered: func(_ string, calls []fastgrpc.Call, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			for i := range calls {
				answered[string(calls[i].Request)]++
			}
		}}, method, fastgrpc.Method{Path: echoPath, Handler: echo})
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		for i, timeout := range []string{"5S", "500m", "5S", "5S", "500m", "100S"} {
			text := "slow "
			if i%2 == 1 {
				text = "quick "
			}
			p.ask(uint32(2*i+1), waitPath, text+strconv.Itoa(i), "grpc-timeout", timeout)
		}
		p.ask(13, echoPath, "x")
		begun := time.Now()
		p.flush()
		waiting := map[uint32]bool{3: true, 7: true, 11: true, 13: true}
		for len(waiting) > 0 {
			got := p.await("an answer", func(f frame) bool { return f.kind == http2.FrameHeaders && f.flags.Has(http2.FlagHeadersEndStream) })
			if !waiting[got.stream] || got.fields["grpc-status"] != "0" {
				t.Fatalf("answered %+v, waiting for %v", got, waiting)
			}
			delete(waiting, got.stream)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("that took %v", took)
		}
		close(release)
		for range 3 {
			got := p.await("an answer", func(f frame) bool { return f.kind == http2.FrameHeaders && f.flags.Has(http2.FlagHeadersEndStream) })
			if got.fields["grpc-status"] != "0" {
				t.Errorf("answered %+v", got)
			}
		}
		synctest.Wait()
		if found := handled(); len(found) != 3 || found["slow 0"] != 1 || found["slow 2"] != 1 || found["slow 4"] != 1 {
			t.Errorf("handled %v", found)
		}
		mu.Lock()
		defer mu.Unlock()
		for text, n := range answered {
			if n != 1 || len(answered) != 7 {
				t.Errorf("%q was told %d times, of %v", text, n, answered)
			}
		}
	})
}

// However many calls wait, those that need not are answered; and what is cancelled before there is room is not handled.
func TestCallsPassThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		method, handled := mixed(release)
		_, listener, stop := startPipes(fastgrpc.Options{HandlerTimeout: time.Hour}, method)
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		id := uint32(1)
		for i := range 40 {
			p.ask(id, waitPath, "slow "+strconv.Itoa(i))
			p.ask(id+2, waitPath, "quick "+strconv.Itoa(i))
			p.flush()
			if got := p.awaitEnd(id + 2); got.fields["grpc-status"] != "0" {
				t.Errorf("answered %+v", got)
			}
			id += 4
		}
		p.check(p.write.WriteRSTStream(id-4, http2.ErrCodeCancel)) // slow 39 waits for room
		p.check(p.write.WritePing(false, [8]byte{1}))
		p.flush()
		p.await("the ping's answer", func(f frame) bool { return f.kind == http2.FramePing && f.flags.Has(http2.FlagPingAck) })
		close(release)
		for range 39 {
			p.await("an answer", func(f frame) bool { return f.kind == http2.FrameHeaders && f.flags.Has(http2.FlagHeadersEndStream) })
		}
		synctest.Wait()
		found := handled()
		if len(found) != 39 || found["slow 39"] != 0 {
			t.Errorf("handled %v", found)
		}
		for text, n := range found {
			if n != 1 {
				t.Errorf("%q was handled %d times", text, n)
			}
		}
	})
}

// Nobody waits for the calls of a connection that has ended.
func TestCallsOfAnEndedConnectionAreNotHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		method, handled := mixed(release)
		server, listener, stop := startPipes(fastgrpc.Options{HandlerTimeout: time.Hour}, method)
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		for i := range 6 {
			p.ask(uint32(2*i+1), waitPath, "slow "+strconv.Itoa(i))
			p.flush()
			time.Sleep(50 * time.Millisecond)
		}
		_ = p.conn.Close()
		synctest.Wait()
		close(release)
		synctest.Wait()
		if found := handled(); len(found) != 4 {
			t.Errorf("handled %v, want the four that had begun", found)
		}
		if n := server.Connections(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
}

// A handler may stop once nobody waits for any of its calls: they were cancelled one by one, or their connection has ended.
func TestHandlerOfCancelledCallsMayStop(t *testing.T) {
	for name, leave := range map[string]func(p *peer){
		"reset": func(p *peer) {
			p.check(p.write.WriteRSTStream(3, http2.ErrCodeCancel))
			p.flush()
		},
		"closed": func(p *peer) { _ = p.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				begun := make(chan struct{}, 1)
				method := fastgrpc.Method{Path: waitPath, Waits: true, Handler: func(ctx context.Context, _ []fastgrpc.Call) {
					if fastgrpc.Wait(ctx) {
						begun <- struct{}{}
						<-ctx.Done()
						ended <- ctx.Err()
					}
				}}
				_, listener, stop := startPipes(fastgrpc.Options{HandlerTimeout: time.Hour}, method, fastgrpc.Method{Path: echoPath, Handler: echo})
				defer stop()
				p := newPeer(t, listener.dial())
				p.listen()
				p.ask(1, waitPath, "x")
				p.ask(3, waitPath, "y")
				p.flush()
				<-begun
				time.Sleep(50 * time.Millisecond)
				p.check(p.write.WriteRSTStream(1, http2.ErrCodeCancel))
				p.check(p.write.WriteRSTStream(1, http2.ErrCodeCancel)) // twice is once
				p.ask(5, echoPath, "z")
				p.flush()
				p.awaitEnd(5)
				select {
				case err := <-ended:
					t.Fatalf("ended with %v while a call is waited for", err)
				default:
				}
				leave(p)
				synctest.Wait()
				select {
				case err := <-ended:
					if err != context.Canceled { //nolint:errorlint // the context's own
						t.Errorf("ended with %v", err)
					}
				default:
					t.Error("the handler goes on")
				}
			})
		})
	}
}
