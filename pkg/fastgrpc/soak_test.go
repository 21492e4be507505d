package fastgrpc_test

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/pkg/fastgrpc"
)

// soakTime is $SOAK_TIME, by default long enough for some thousand calls.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SOAK_TIME")
	if text == "" {
		return 4 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// soakBytes is what may be left of a soak: what pools keep, and the clients' buffers.
const soakBytes = 32 << 20

func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse
}

// moody is a connection that sometimes breaks off, by a reset even, and sometimes pauses.
type moody struct{ net.Conn }

func (m moody) Read(b []byte) (int, error) {
	switch rand.IntN(2000) { //nolint:gosec // no secret
	case 0:
		if tcp, ok := m.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(rand.IntN(2) - 1) //nolint:gosec // no secret
		}
		_ = m.Close()
	case 1, 2, 3:
		time.Sleep(20 * time.Millisecond)
	}
	return m.Conn.Read(b[:1+rand.IntN(len(b))]) //nolint:gosec // no secret
}

// Calls of all kinds from connections that are cut, paused and reset: every answer belongs to its question, and nothing is
// left behind.
func TestSoak(t *testing.T) {
	before, heapBefore := runtime.NumGoroutine(), heapInUse()
	slow := fastgrpc.Method{Path: waitPath, Waits: true, Handler: func(ctx context.Context, calls []fastgrpc.Call) {
		for i := range calls { // some need not wait
			if len(calls[i].Request)%3 == 0 {
				echo(ctx, calls[i:i+1])
				calls[i].Done = true
			}
		}
		if !fastgrpc.Wait(ctx) {
			return
		}
		if rand.IntN(4) == 0 { //nolint:gosec // no secret
			select {
			case <-time.After(time.Duration(rand.IntN(12)) * time.Millisecond): //nolint:gosec // no secret
			case <-ctx.Done():
			}
		}
		for i := range calls {
			if !calls[i].Done {
				echo(ctx, calls[i:i+1])
			}
		}
	}}
	server, address := start(t, fastgrpc.Options{}, fastgrpc.Method{Path: echoPath, Handler: echo}, slow)
	var answered, failed atomic.Int64
	until := time.Now().Add(soakTime(t))
	var callers sync.WaitGroup
	for i := range 4 {
		connection := dial(t, address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			return moody{connection}, err
		}))
		for j := range 24 {
			callers.Go(func() {
				for k := 0; time.Now().Before(until); k++ {
					token := strings.Repeat(strconv.Itoa(i)+" "+strconv.Itoa(j)+" "+strconv.Itoa(k)+";", 1+rand.IntN(1+rand.IntN(3000))) //nolint:gosec // no secret
					path, timeout := echoPath, 2*time.Second
					if rand.IntN(2) == 0 { //nolint:gosec // no secret
						path = waitPath
					}
					if rand.IntN(10) == 0 { //nolint:gosec // no secret
						timeout = time.Duration(rand.IntN(5000)) * time.Microsecond //nolint:gosec // no secret
					}
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					reply := new(wrapperspb.StringValue)
					err := connection.Invoke(ctx, path, wrapperspb.String(token), reply, grpc.WaitForReady(true))
					cancel()
					switch code := status.Code(err); code {
					case codes.OK:
						answered.Add(1)
						if reply.GetValue() != token {
							t.Errorf("%.40q was answered %.40q", token, reply.GetValue())
							return
						}
					case codes.DeadlineExceeded, codes.Unavailable:
						failed.Add(1)
					default:
						t.Errorf("a call failed: %v", err)
						return
					}
				}
			})
		}
	}
	callers.Wait()
	t.Logf("%d calls answered, %d cut or late", answered.Load(), failed.Load())
	if answered.Load() < 1000 {
		t.Errorf("only %d calls were answered", answered.Load())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if n := server.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	if after := heapInUse(); after > heapBefore+soakBytes {
		t.Errorf("the heap has %d MiB, %d before", after>>20, heapBefore>>20)
	}
	t.Cleanup(func() {
		for range 200 {
			if runtime.NumGoroutine() <= before+12 { // the clients' end with the test
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
	})
}
