package fastgrpc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/test/servers"
)

const (
	soakTokens      = 300
	soakConnections = 4
	soakCallers     = 16       // on each
	soakGoroutines  = 40       // more than before, of a server that has no calls any more
	soakBytes       = 32 << 20 // the same of its heap
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
		t.Fatalf("SOAK_TIME: %v: write 30s or 2h", err)
	}
	return d
}

// moody is a connection that sometimes breaks off, by a reset even, and sometimes pauses.
type moody struct{ net.Conn }

func (m moody) Read(b []byte) (int, error) {
	switch rand.IntN(3000) { //nolint:gosec // no secret
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

// soakRules have a rule for each token, whose name says which: a third are counted, a third unlimited, a third over their limit.
func soakRules() string {
	var text strings.Builder
	text.WriteString("domain: edge\ndescriptors:\n")
	for token := range soakTokens {
		limit := "limits: [{limit: 1000000, window: 1s}]"
		switch token % 3 {
		case 1:
			limit = "limits: [{algorithm: fixed_window, limit: 1, window: 365d}]"
		case 2:
			limit = "action: deny"
		}
		fmt.Fprintf(&text, "  - {key: token, value: t%d, name: n%d, %s}\n", token, token, limit)
	}
	return text.String()
}

// soakCall asks for some tokens, and checks that they come back. One that is in a hurry may be let pass without Redis's word.
func soakCall(ctx context.Context, client rlsv3.RateLimitServiceClient, hurry bool) error {
	request := &rlsv3.RateLimitRequest{Domain: "edge"}
	tokens := make([]int, 1+rand.IntN(4)) //nolint:gosec // no secret
	for i := range tokens {
		tokens[i] = rand.IntN(soakTokens) //nolint:gosec // no secret
		request.Descriptors = append(request.Descriptors, &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{
			{Key: "token", Value: fmt.Sprintf("t%d", tokens[i])},
		}})
	}
	reply, err := client.ShouldRateLimit(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if len(reply.GetStatuses()) != len(tokens) {
		return fmt.Errorf("%d statuses for %d descriptors", len(reply.GetStatuses()), len(tokens))
	}
	for i, token := range tokens {
		s := reply.GetStatuses()[i]
		over := s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT
		name := s.GetCurrentLimit().GetName()
		switch {
		case hurry && !over && name == "" && token%3 != 2:
		case token%3 == 2 && (!over || name != ""), token%3 == 0 && over, token%3 != 2 && name != fmt.Sprintf("n%d", token):
			return fmt.Errorf("token %d was answered %v", token, s)
		}
	}
	return nil
}

// Real connections to a real server with Redis are cut, paused and reset, and calls given up, all the time: every answer belongs
// to its question, and in the end the server holds nothing more than before.
func TestSoakOfServer(t *testing.T) {
	redis := servers.Redis(t)
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": soakRules()}, Set: map[string]string{
		"redis.url": "redis://" + redis.Addr(), "redis.timeout_ms": "10000", "server.grpc.max_connection_age": "7s",
	}})
	heap := func() float64 { return weir.Metric("go_memstats_heap_inuse_bytes") }
	goroutines := func() float64 { return weir.Metric("go_goroutines") }
	beforeGoroutines, beforeHeap := goroutines(), heap()

	ctx, stop := context.WithTimeout(t.Context(), soakTime(t))
	defer stop()
	var answered, failed atomic.Int64
	var callers sync.WaitGroup
	connections := make([]*grpc.ClientConn, soakConnections)
	for i := range connections {
		connections[i] = connect(t, weir.Fast(), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			return moody{connection}, err
		}))
		client := rlsv3.NewRateLimitServiceClient(connections[i])
		for range soakCallers {
			callers.Go(func() {
				for ctx.Err() == nil {
					timeout, hurry := 20*time.Second, rand.IntN(8) == 0 //nolint:gosec // no secret
					if hurry {
						timeout = time.Duration(rand.IntN(3000)) * time.Microsecond //nolint:gosec // no secret
					}
					call, cancel := context.WithTimeout(t.Context(), timeout)
					err := soakCall(call, client, hurry)
					cancel()
					switch status.Code(err) {
					case codes.OK:
						answered.Add(1)
					case codes.DeadlineExceeded, codes.Unavailable:
						failed.Add(1)
					default:
						t.Error(err)
						return
					}
				}
			})
		}
	}
	callers.Wait()
	t.Logf("%d calls answered, %d cut or late", answered.Load(), failed.Load())
	if answered.Load() < 500 || failed.Load() == 0 {
		t.Errorf("%d calls answered, %d cut or late", answered.Load(), failed.Load())
	}
	for _, connection := range connections {
		_ = connection.Close()
	}
	servers.Eventually(t, "the server's goroutines end", func() bool { return goroutines() < beforeGoroutines+soakGoroutines })
	if after := heap(); after > beforeHeap+soakBytes {
		t.Errorf("the heap has %.0f MiB, %.0f before", after/(1<<20), beforeHeap/(1<<20))
	}
	if log := weir.Process().Log(); strings.Contains(log, "panic") {
		t.Error(log)
	}
}
