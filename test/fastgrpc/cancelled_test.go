package fastgrpc

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/test/servers"
)

// burster is a client that decides which frames go out together.
type burster struct {
	t      *testing.T
	conn   net.Conn
	out    bytes.Buffer
	framer *http2.Framer
	header []byte
	pings  byte
	ended  []uint32 // streams that were answered
}

func burst(t *testing.T, address string) *burster {
	t.Helper()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := &burster{t: t, conn: connection, header: callHeader(t, false)}
	b.framer = http2.NewFramer(&b.out, connection)
	b.out.WriteString(http2.ClientPreface)
	b.check(b.framer.WriteSettings())
	return b
}

func (b *burster) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// ask adds a call to the burst.
func (b *burster) ask(id uint32, request *rlsv3.RateLimitRequest) {
	b.t.Helper()
	writeCall(b.t, b.framer, id, b.header, request)
}

// send sends the burst, and returns when the server has read it, whatever it does about it.
func (b *burster) send() {
	b.t.Helper()
	b.pings++
	b.check(b.framer.WritePing(false, [8]byte{b.pings}))
	_, err := b.conn.Write(b.out.Bytes())
	b.check(err)
	b.out.Reset()
	b.hear(func(f http2.Frame) bool {
		ping, ok := f.(*http2.PingFrame)
		return ok && ping.IsAck() && ping.Data[0] == b.pings
	})
}

// hear reads until a frame for which last is true.
func (b *burster) hear(last func(http2.Frame) bool) {
	b.t.Helper()
	for {
		f, err := b.framer.ReadFrame()
		b.check(err)
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			b.ended = append(b.ended, h.StreamID)
		}
		if last(f) {
			return
		}
	}
}

// awaitEnds returns when so many streams have been answered.
func (b *burster) awaitEnds(n int) {
	b.t.Helper()
	for len(b.ended) < n {
		b.hear(func(http2.Frame) bool { return true })
	}
}

// Of a burst of which some calls are cancelled while it waits for its turn at Redis, exactly the others are charged and
// answered, and nobody takes that for a failure.
func TestPartlyCancelledBurst(t *testing.T) {
	redis := servers.Redis(t)
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": pausedRules}, Set: map[string]string{
		"redis.url": "redis://" + redis.Addr(), "redis.timeout_ms": "30000", "redis.pool_size": "1", "failure.breaker.failures": "1",
	}})
	first, second := burst(t, weir.Fast()), burst(t, weir.Fast())
	first.ask(1, asking("user", "warm"))
	first.send()
	servers.Eventually(t, "the connection to Redis is idle", func() bool { return weir.Metric("weir_redis_pool_idle_connections") == 1 })

	redis.Pause()
	defer redis.Resume() // again, if all goes well
	first.ask(3, asking("user", "occupies the flight"))
	first.send()
	servers.Eventually(t, "the flight has taken off", func() bool { return weir.Metric("weir_redis_pool_idle_connections") == 0 })

	const calls = 10
	user := func(i int) string { return fmt.Sprintf("of-a-burst-%d", i) }
	id := func(i int) uint32 { return uint32(2*i + 1) }
	cancelled := func(i int) bool { return i%3 == 0 }
	for i := range calls {
		second.ask(id(i), asking("user", user(i)))
	}
	second.send()
	for i := range calls {
		if cancelled(i) {
			second.check(second.framer.WriteRSTStream(id(i), http2.ErrCodeCancel))
		}
	}
	second.send()
	if len(second.ended) > 0 {
		t.Errorf("streams %v are answered while Redis hangs", second.ended)
	}
	redis.Resume()

	var want []uint32
	for i := range calls {
		if !cancelled(i) {
			want = append(want, id(i))
		}
	}
	second.awaitEnds(len(want))
	for i := range calls { // what is answered from here on was asked here
		second.ask(id(calls+i), asking("user", user(i)))
		want = append(want, id(calls+i))
	}
	second.send()
	second.awaitEnds(len(want))
	if slices.Sort(second.ended); !slices.Equal(second.ended, want) {
		t.Errorf("answered are %v, want %v", second.ended, want)
	}

	client := rlsv3.NewRateLimitServiceClient(connect(t, weir.Fast()))
	for i := range calls {
		charged := uint32(3)
		if cancelled(i) {
			charged--
		}
		reply, err := client.ShouldRateLimit(t.Context(), asking("user", user(i)))
		if err != nil {
			t.Fatal(err)
		}
		if got := 1000 - reply.GetStatuses()[0].GetLimitRemaining(); got != charged {
			t.Errorf("call %d: %d hits were charged, want %d", i, got, charged)
		}
	}
	_, metrics := weir.Get("/metrics")
	for line := range strings.Lines(metrics) {
		failed := strings.Contains(line, `outcome="failed_`) || strings.HasPrefix(line, "weir_store_failed_charges_total ")
		if failed && !strings.HasSuffix(line, " 0\n") {
			t.Errorf("it counts as a failure: %s", line)
		}
	}
	if n := weir.Metric(`weir_grpc_requests_total{code="Canceled",method="` + envoy.MethodPath + `"}`); n != 4 {
		t.Errorf("%v calls are cancelled, want 4", n)
	}
}
