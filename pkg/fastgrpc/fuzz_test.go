package fastgrpc_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/pkg/fastgrpc"
)

// Whatever bytes a client sends after a proper beginning, the server neither panics nor hangs, and a call on another
// connection is answered.
func FuzzConnection(f *testing.F) {
	seed := func(build func(p *peer)) {
		p := newPeer(f, nil)
		p.out.Reset()
		build(p)
		f.Add(bytes.Clone(p.out.Bytes()))
	}
	seed(func(p *peer) { p.ask(1, echoPath, "x") })
	seed(func(p *peer) {
		p.ask(1, waitPath, "x", "grpc-timeout", "1m")
		p.check(p.write.WriteRSTStream(1, http2.ErrCodeCancel))
		p.ask(3, "/no/Method", "x")
	})
	seed(func(p *peer) {
		p.check(p.write.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.call(echoPath)}))
		p.check(p.write.WriteContinuation(1, true, nil))
		p.check(p.write.WriteDataPadded(1, false, message("abcd")[:4], make([]byte, 9)))
		p.check(p.write.WriteData(1, true, message("abcd")[4:]))
	})
	seed(func(p *peer) {
		p.check(p.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize}))
		p.ask(1, echoPath, "a longer message")
		p.check(p.write.WriteWindowUpdate(1, 2))
		p.check(p.write.WriteWindowUpdate(0, 1<<30))
		p.check(p.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		p.check(p.write.WriteGoAway(0, http2.ErrCodeNo, nil))
		p.check(p.write.WritePing(false, [8]byte{}))
		p.check(p.write.WritePriority(1, http2.PriorityParam{StreamDep: 3}))
	})
	_, address := start(f, fastgrpc.Options{MaxMessageBytes: 4 << 10})
	f.Fuzz(func(t *testing.T, data []byte) {
		connection, err := net.Dial("tcp", address) //nolint:noctx // loopback
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		if err := connection.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		begin := append([]byte(http2.ClientPreface), 0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0)
		if _, err := connection.Write(append(begin, data...)); err != nil {
			return // the server has ended it
		}
		if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
			return // the server has ended it
		}
		if n, err := io.Copy(io.Discard, connection); n > int64(1<<20+300*len(data)) || isTimeout(err) {
			t.Errorf("%d bytes came for %d: %v", n, len(data), err)
		}
	})
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error) //nolint:errorlint // of the connection itself
	return ok && timeout.Timeout()
}
