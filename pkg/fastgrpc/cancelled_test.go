package fastgrpc_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/pkg/fastgrpc"
)

// A handler that waits is told which of its calls are cancelled meanwhile, and nothing of calls that had their memory before.
func TestHandlersAreToldOfCancelledCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var mu sync.Mutex
		var cancelled, ended []string
		method := fastgrpc.Method{Path: waitPath, Waits: true, Handler: func(ctx context.Context, calls []fastgrpc.Call) {
			for i := range calls {
				if calls[i].Cancelled.Load() {
					t.Errorf("%s is cancelled when the handler is called", calls[i].Request)
				}
			}
			if !fastgrpc.Wait(ctx) {
				return
			}
			<-release
			mu.Lock()
			defer mu.Unlock()
			for i := range calls {
				if calls[i].Cancelled.Load() {
					cancelled = append(cancelled, string(calls[i].Request))
				}
			}
			if ctx.Err() != nil {
				ended = append(ended, string(calls[0].Request))
			}
			echo(ctx, calls)
		}}
		_, listener, stop := startPipes(fastgrpc.Options{HandlerTimeout: time.Hour}, method)
		defer stop()
		p := newPeer(t, listener.dial())
		p.listen()
		for round := range uint32(4) {
			first := 16*round + 1
			for i := range uint32(8) {
				timeout := "500S"
				if i%2 == 1 {
					timeout = "1000S" // another deadline, another handler
				}
				p.ask(first+2*i, waitPath, string(rune('a'+i)), "grpc-timeout", timeout)
			}
			p.flush()
			time.Sleep(50 * time.Millisecond) // the reading is handed over
			for _, i := range []uint32{1, 2, 3, 5, 6, 7} {
				p.check(p.write.WriteRSTStream(first+2*i, http2.ErrCodeCancel))
			}
			p.flush()
			synctest.Wait()
			for range 2 {
				release <- struct{}{}
			}
			p.awaitEnd(first)
			p.awaitEnd(first + 8)
			mu.Lock()
			slices.Sort(cancelled)
			if got := strings.Join(cancelled, ""); got != "bcdfgh" || !slices.Equal(ended, []string{"b"}) {
				t.Errorf("in round %d %s are cancelled, and the contexts of %v have ended", round, got, ended)
			}
			cancelled, ended = nil, nil
			mu.Unlock()
		}
	})
}
