package fastgrpc

import (
	"bytes"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/test/servers"
)

// A connection that has nothing to do, after a call, takes less than 32 KiB of the server: 5,000 of them are open here.
func TestIdleConnectionsAreSmall(t *testing.T) {
	const connections, most, dialers = 5000, 32 << 10, 32
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": edgeRules}})
	memory := func() float64 {
		t.Helper()
		response, err := http.Get(weir.HTTP() + "/debug/pprof/heap?gc=1") //nolint:noctx // so that only what is used counts
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return weir.Metric("go_memstats_heap_inuse_bytes") + weir.Metric("go_memstats_stack_inuse_bytes")
	}
	call := oneCall(t)
	before := memory()
	var dialling sync.WaitGroup
	for range dialers {
		dialling.Go(func() {
			for range connections / dialers {
				connection, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", weir.Fast())
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { _ = connection.Close() })
				if err := askOnce(connection, call); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	dialling.Wait()
	each := (memory() - before) / (connections / dialers * dialers)
	t.Logf("an idle connection takes %.0f bytes", each)
	if each > most || each < 1<<10 {
		t.Errorf("an idle connection takes %.0f bytes, want 1 KiB to 32 KiB", each)
	}
}

// oneCall is what a client sends for its first call.
func oneCall(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	writeCall(t, framer, 1, callHeader(t, true), asking("user", "idle"))
	return out.Bytes()
}

// callHeader is the header of a call. If it is not indexed it leaves nothing in the header table, so that it is the same for all
// calls of a connection.
func callHeader(t *testing.T, indexed bool) []byte {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", envoy.MethodPath},
		{":authority", "weir"},
		{"te", "trailers"},
		{"content-type", "application/grpc"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: !indexed}); err != nil {
			t.Fatal(err)
		}
	}
	return block.Bytes()
}

// writeCall writes the frames of a call with this header.
func writeCall(t *testing.T, framer *http2.Framer, id uint32, header []byte, request *rlsv3.RateLimitRequest) {
	t.Helper()
	message, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: header, EndHeaders: true}),
		framer.WriteData(id, true, append([]byte{0, 0, 0, 0, byte(len(message))}, message...)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// askOnce sends a call and waits for the end of its answer.
func askOnce(connection net.Conn, call []byte) error {
	if err := connection.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := connection.Write(call); err != nil {
		return err
	}
	framer := http2.NewFramer(nil, connection)
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		if h := f.Header(); h.Type == http2.FrameHeaders && h.Flags.Has(http2.FlagHeadersEndStream) {
			return nil
		}
	}
}
