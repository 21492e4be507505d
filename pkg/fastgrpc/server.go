package fastgrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/pkg/rawconn"
)

// ErrServerClosed is returned by Serve after Shutdown or Close.
var ErrServerClosed = errors.New("fastgrpc: the server is closed")

// Server answers calls. All its methods are safe for concurrent use.
type Server struct {
	options Options
	methods map[string]*Method
	now     func() time.Time
	tick    atomic.Int64 // sweeps so far
	watch   watch

	context context.Context //nolint:containedctx // of handshakes, ended by Close
	cancel  context.CancelFunc
	stopped chan struct{}
	start   sync.Once
	stop    sync.Once
	tasks   sync.WaitGroup // goroutines of connections

	mu        sync.Mutex
	conns     map[*conn]struct{}
	listeners map[net.Listener]struct{}
	draining  bool
}

// New returns a Server that answers methods.
func New(options Options, methods ...Method) *Server {
	options.setDefaults()
	s := &Server{
		options: options, methods: make(map[string]*Method), now: time.Now, stopped: make(chan struct{}),
		conns: make(map[*conn]struct{}), listeners: make(map[net.Listener]struct{}),
	}
	s.tick.Store(1) // 0 is never
	s.context, s.cancel = context.WithCancel(context.Background())
	for i := range methods {
		s.methods[methods[i].Path] = &methods[i]
	}
	return s
}

// window is what a stream may send before it is answered: a message of the greatest size fits, so no stream needs more.
func (s *Server) window() int64 { return int64(max(firstWindow, s.options.MaxMessageBytes+1024)) }

// Connections is the number of those that are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Serve answers the connections that come to listener, which it closes in the end. It returns ErrServerClosed after
// Shutdown or Close, else the error of the listener.
func (s *Server) Serve(listener net.Listener) error {
	defer listener.Close()
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		return ErrServerClosed
	}
	s.listeners[listener] = struct{}{}
	s.mu.Unlock()
	s.start.Do(func() { go s.sweep() })
	var pause time.Duration
	for {
		nc, err := listener.Accept()
		if err == nil {
			pause = 0
			s.accept(nc)
			continue
		}
		s.mu.Lock()
		draining := s.draining
		s.mu.Unlock()
		if draining {
			return ErrServerClosed
		}
		if !errors.Is(err, net.ErrClosed) && isPassing(err) {
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
				continue
			case <-s.stopped:
				return ErrServerClosed
			}
		}
		return err
	}
}

// isPassing reports whether accepting may go well later: file descriptors have run out, for example.
func isPassing(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

func (s *Server) accept(nc net.Conn) {
	nc = rawconn.New(nc)
	if s.options.TLS != nil {
		nc = tls.Server(nc, s.options.TLS)
	}
	c := s.newConn(nc)
	if age := s.options.MaxConnectionAge; age > 0 {
		c.ages = c.opened + max(1, int64(float64(ticks(age))*(0.9+0.2*rand.Float64()))) //nolint:gosec // spreads load
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || len(s.conns) >= s.options.MaxConnections {
		go func() { _ = nc.Close() }() // TLS would say goodbye, which may wait
		return
	}
	s.conns[c] = struct{}{}
	s.tasks.Add(1)
	go c.serve()
}

// forget ends a connection that nobody reads any more.
func (s *Server) forget(c *conn) {
	c.mu.Lock()
	c.kill()
	for _, stream := range c.streams {
		if stream.queued {
			c.abandon(stream)
		}
	}
	putBuffer(c.buf)
	c.buf = nil
	c.mu.Unlock()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Shutdown closes the listeners, tells all peers to go, answers what they had asked, and returns when the last connection
// has ended or ctx does; its error then.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for listener := range s.listeners {
		_ = listener.Close()
	}
	connections := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		connections = append(connections, c)
	}
	s.mu.Unlock()
	for _, c := range connections {
		go func() { // a connection may be writing to a peer that does not read
			c.mu.Lock()
			defer c.mu.Unlock()
			c.announce(0)
		}()
	}
	ended := make(chan struct{})
	go func() {
		s.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		s.halt()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends everything at once. It returns when no handler runs any more.
func (s *Server) Close() error {
	s.mu.Lock()
	s.draining = true
	for listener := range s.listeners {
		_ = listener.Close()
	}
	for c := range s.conns {
		_ = closeNow(c.net)
	}
	s.mu.Unlock()
	s.halt()
	s.tasks.Wait()
	return nil
}

// closeNow closes without TLS's goodbye.
func closeNow(nc net.Conn) error {
	if t, ok := nc.(*tls.Conn); ok {
		return t.NetConn().Close()
	}
	return nc.Close()
}

func (s *Server) halt() {
	s.stop.Do(func() {
		s.cancel()
		close(s.stopped)
	})
}
