package fastgrpc_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirhq/weir/pkg/fastgrpc"
)

// pipes is a listener of connections in memory.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case connection := <-p.accept:
		return connection, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.accept <- there
	return here
}

// startPipes serves in memory until stop is called, which a test in a bubble of synctest must do.
func startPipes(options fastgrpc.Options, methods ...fastgrpc.Method) (server *fastgrpc.Server, listener *pipes, stop func()) {
	if methods == nil {
		methods = []fastgrpc.Method{{Path: echoPath, Handler: echo}, {Path: waitPath, Handler: patient(echo), Waits: true}}
	}
	server, listener = fastgrpc.New(options, methods...), newPipes()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	return server, listener, func() {
		_ = server.Close()
		<-ended
	}
}

// peer is a client that sends whatever a test wants. What it sends is gathered until flush.
type peer struct {
	t       testing.TB
	conn    net.Conn
	out     bytes.Buffer
	write   *http2.Framer
	fields  bytes.Buffer
	encoder *hpack.Encoder
	frames  chan frame // what comes; closed with the connection
}

// frame is what a peer has received.
type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	payload []byte
	fields  map[string]string // of HEADERS
	code    http2.ErrCode     // of RST_STREAM and GOAWAY
}

// newPeer begins with the preface and settings, without waiting for an answer.
func newPeer(t testing.TB, connection net.Conn, settings ...http2.Setting) *peer {
	t.Helper()
	p := &peer{t: t, conn: connection, frames: make(chan frame, 1<<15)}
	p.write = http2.NewFramer(&p.out, nil)
	p.encoder = hpack.NewEncoder(&p.fields)
	p.out.WriteString(http2.ClientPreface)
	p.check(p.write.WriteSettings(settings...))
	return p
}

func (p *peer) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// listen reads what comes until the connection ends.
func (p *peer) listen() {
	go func() {
		defer close(p.frames)
		read := http2.NewFramer(io.Discard, p.conn)
		read.AllowIllegalReads = true
		decoder := hpack.NewDecoder(4096, nil)
		for {
			f, err := read.ReadFrame()
			if err != nil {
				return
			}
			header := f.Header()
			got := frame{kind: header.Type, flags: header.Flags, stream: header.StreamID}
			switch f := f.(type) {
			case *http2.HeadersFrame:
				fields, err := decoder.DecodeFull(f.HeaderBlockFragment())
				if err != nil {
					got.fields = map[string]string{"error": err.Error()}
					break
				}
				got.fields = make(map[string]string)
				for _, field := range fields {
					got.fields[field.Name] = field.Value
				}
			case *http2.DataFrame:
				got.payload = bytes.Clone(f.Data())
			case *http2.PingFrame:
				got.payload = bytes.Clone(f.Data[:])
			case *http2.RSTStreamFrame:
				got.code = f.ErrCode
			case *http2.GoAwayFrame:
				got.code, got.payload = f.ErrCode, bytes.Clone(f.DebugData())
			}
			p.frames <- got
		}
	}()
}

// flush sends what was gathered. A server that has closed the connection is no error.
func (p *peer) flush() {
	p.t.Helper()
	_, err := p.conn.Write(p.out.Bytes())
	p.out.Reset()
	if err != nil && !errors.Is(err, io.ErrClosedPipe) && !errors.As(err, new(*net.OpError)) {
		p.t.Fatal(err)
	}
}

// block encodes a header block.
func (p *peer) block(fields ...string) []byte {
	p.fields.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.check(p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(p.fields.Bytes())
}

// call is the header of a call, with further fields.
func (p *peer) call(path string, fields ...string) []byte {
	return p.block(append([]string{
		":method", "POST", ":scheme", "http", ":path", path, ":authority", "weir", "te", "trailers", "content-type", "application/grpc",
	}, fields...)...)
}

func (p *peer) headers(id uint32, end bool, block []byte) {
	p.t.Helper()
	p.check(p.write.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end}))
}

func message(text string) []byte {
	return append([]byte{0, 0, 0, byte(len(text) >> 8), byte(len(text))}, text...)
}

// ask gathers a whole call.
func (p *peer) ask(id uint32, path, text string, fields ...string) {
	p.t.Helper()
	p.headers(id, false, p.call(path, fields...))
	p.check(p.write.WriteData(id, true, message(text)))
}

// await returns the first frame to come for which want is true.
func (p *peer) await(what string, want func(frame) bool) frame {
	p.t.Helper()
	for got := range p.frames {
		if want(got) {
			return got
		}
	}
	p.t.Fatalf("the connection ended before %s", what)
	return frame{}
}

// awaitEnd returns what is said about the end of a stream.
func (p *peer) awaitEnd(id uint32) frame {
	p.t.Helper()
	return p.await("the end of a stream", func(f frame) bool {
		return f.stream == id && (f.kind == http2.FrameRSTStream || f.flags.Has(http2.FlagDataEndStream) && f.kind != http2.FrameWindowUpdate)
	})
}

// awaitGoAway returns the code that the connection ends with.
func (p *peer) awaitGoAway() http2.ErrCode {
	p.t.Helper()
	return p.await("a GOAWAY", func(f frame) bool { return f.kind == http2.FrameGoAway }).code
}

// awaitClose waits until the connection has ended.
func (p *peer) awaitClose() {
	for range p.frames {
	}
}
