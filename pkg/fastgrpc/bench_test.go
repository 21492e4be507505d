package fastgrpc_test

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/pkg/fastgrpc"
)

// burst connects and returns the bytes of n calls as Envoy would repeat them, and how many bytes answer them.
func burst(b testing.TB, address, path string, n int) (connection net.Conn, fill func(first uint32) []byte, answer int) {
	b.Helper()
	connection, err := net.Dial("tcp", address) //nolint:noctx // loopback
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = connection.Close() })
	p := newPeer(b, connection)
	p.ask(1, path, strings.Repeat("x", 60), "grpc-timeout", "20m", "x-envoy-internal", "true")
	p.ask(3, path, strings.Repeat("x", 60), "grpc-timeout", "20m", "x-envoy-internal", "true")
	p.flush()
	// One frame at a time until both are answered.
	ended := 0
	read := http2.NewFramer(nil, connection)
	for ended < 2 {
		f, err := read.ReadFrame()
		if err != nil {
			b.Fatal(err)
		}
		if f.Header().Type == http2.FrameHeaders && f.Header().Flags.Has(http2.FlagHeadersEndStream) {
			ended++
		}
	}
	var ids []int
	for range n {
		ids = append(ids, p.out.Len())
		p.ask(5, path, strings.Repeat("x", 60), "grpc-timeout", "20m", "x-envoy-internal", "true")
	}
	data := p.out.Bytes()
	headers := len(data)/n - 9 - 65 - 9
	fill = func(first uint32) []byte {
		for i, at := range ids {
			id := first + uint32(2*i)
			for _, o := range []int{at + 5, at + 9 + headers + 5} {
				data[o], data[o+1], data[o+2], data[o+3] = byte(id>>24), byte(id>>16), byte(id>>8), byte(id)
			}
		}
		return data
	}
	return connection, fill, n * (9 + 2 + 9 + 65 + 9 + 1)
}

func benchmarkCalls(b *testing.B, path string, n int) {
	_, address := start(b, fastgrpc.Options{})
	connection, fill, answer := burst(b, address, path, n)
	got := make([]byte, answer)
	id := uint32(5)
	windows := []byte{0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 1, 0, 0}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := connection.Write(fill(id)); err != nil {
			b.Fatal(err)
		}
		for left := answer; left > 0; {
			read, err := connection.Read(got[:left])
			if err != nil {
				b.Fatal(err)
			}
			left -= read
		}
		if id += uint32(2 * n); id/(2*uint32(n))%(500/uint32(n)+1) == 0 {
			if _, err := connection.Write(windows); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/call")
}

func BenchmarkOneCall(b *testing.B)           { benchmarkCalls(b, echoPath, 1) }
func BenchmarkBurstOf64(b *testing.B)         { benchmarkCalls(b, echoPath, 64) }
func BenchmarkBurstOf64ThatWait(b *testing.B) { benchmarkCalls(b, waitPath, 64) }

// Calls as Envoy sends them, thousands on one connection, allocate nothing.
func TestCallsDoNotAllocate(t *testing.T) {
	_, address := start(t, fastgrpc.Options{})
	connection, fill, answer := burst(t, address, echoPath, 16)
	got := make([]byte, answer)
	id := uint32(5)
	round := func() {
		if _, err := connection.Write(fill(id)); err != nil {
			t.Fatal(err)
		}
		for left := answer; left > 0; {
			read, err := connection.Read(got[:left])
			if err != nil {
				t.Fatal(err)
			}
			left -= read
		}
		id += 32
	}
	for range 10 {
		round()
	}
	// A garbage collection may empty the pools once.
	if allocations := testing.AllocsPerRun(20, round); allocations > 1 && !raceEnabled {
		t.Errorf("%v allocations per 16 calls", allocations)
	}
}

func TestIdleConnectionsAreSmall(t *testing.T) {
	const connections, most = 200, 32 << 10
	server, address := start(t, fastgrpc.Options{})
	measure := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapInuse + stats.StackInuse
	}
	before := measure()
	for range connections {
		burst(t, address, echoPath, 1)
	}
	for server.Connections() < connections {
		time.Sleep(time.Millisecond)
	}
	if each := (measure() - before) / connections; each > 2*most { // with the client's half of it
		t.Errorf("an idle connection takes %d bytes", each)
	} else {
		t.Logf("an idle connection, with its client's, takes %d bytes", each)
	}
}
