package bench

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
)

// answer is a RateLimitService made of a function.
type answer struct {
	rlsv3.UnimplementedRateLimitServiceServer
	do func(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error)
}

func (a answer) ShouldRateLimit(ctx context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return a.do(ctx, request)
}

// right answers as a real server does: one status per descriptor.
func right(_ context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return response(rlsv3.RateLimitResponse_OK, len(request.GetDescriptors())), nil
}

func listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// serveGRPC starts a grpc-go server on a free port.
func serveGRPC(t testing.TB, do func(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error), options ...grpc.ServerOption) Target {
	t.Helper()
	return serveGRPCOn(t, listen(t, "tcp", "127.0.0.1:0"), do, options...)
}

func serveGRPCOn(t testing.TB, listener net.Listener, do func(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error), options ...grpc.ServerOption) Target {
	t.Helper()
	server := grpc.NewServer(options...)
	rlsv3.RegisterRateLimitServiceServer(server, answer{do: do})
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return Target{Address: Address{listener.Addr().Network(), listener.Addr().String()}}
}

// script is an HTTP/2 server that does what a test tells it to.
type script struct {
	t       testing.TB
	settled []http2.Setting // sent first
	// call is run for each request, on one goroutine per connection. It reports false to end the connection.
	call func(*wire, uint32) bool
	// open is run before the server's settings are sent. It reports false to end the connection. nil does nothing.
	open func(net.Conn) bool

	mu    sync.Mutex
	conns map[net.Conn]bool
	done  sync.WaitGroup
}

// wire is one connection of a script.
type wire struct {
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	conn    net.Conn
	calls   int // on this connection
	number  int // of this connection
}

func (s *script) serve() Target {
	s.t.Helper()
	listener := listen(s.t, "tcp", "127.0.0.1:0")
	s.conns = map[net.Conn]bool{}
	s.done.Go(func() {
		for number := 0; ; number++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.mu.Unlock()
			s.done.Go(func() { s.handle(conn, number) })
		}
	})
	s.t.Cleanup(func() {
		_ = listener.Close()
		s.mu.Lock()
		for conn := range s.conns {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.done.Wait()
	})
	return Target{Address: Address{"tcp", listener.Addr().String()}}
}

func (s *script) handle(conn net.Conn, number int) {
	defer conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := conn.Read(preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	if s.open != nil && !s.open(conn) {
		return
	}
	w := &wire{framer: http2.NewFramer(conn, conn), conn: conn, number: number}
	w.encoder = hpack.NewEncoder(&w.block)
	if w.framer.WriteSettings(s.settled...) != nil {
		return
	}
	for {
		frame, err := w.framer.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() && w.framer.WriteSettingsAck() != nil {
				return
			}
		case *http2.DataFrame:
			if w.framer.WriteWindowUpdate(0, frame.Length) != nil {
				return
			}
			w.calls++
			if !s.call(w, frame.StreamID) {
				return
			}
		}
	}
}

// headers returns a header block of name, value pairs, valid until the next one.
func (w *wire) headers(pairs ...string) []byte {
	w.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = w.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return w.block.Bytes()
}

// reply writes a complete reply.
func (w *wire) reply(id uint32, body []byte, status string) bool {
	return w.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, EndHeaders: true, BlockFragment: w.headers(":status", "200", "content-type", "application/grpc"),
	}) == nil &&
		w.framer.WriteData(id, false, body) == nil &&
		w.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, EndHeaders: true, EndStream: true, BlockFragment: w.headers("grpc-status", status),
		}) == nil
}
