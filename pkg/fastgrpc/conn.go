package fastgrpc

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

const (
	smallBuffer = 4 << 10
	largeBuffer = 32 << 10
	calmReads   = 256 // reads that fit a small buffer before a large one is given back
	rememberIDs = 64  // streams that were reset, whose late frames are ignored
)

// conn is one connection. One goroutine at a time reads; its fields are under mu but for those of the reader.
type conn struct {
	server  *Server
	net     net.Conn
	opened  int64        // tick
	ages    int64        // tick at which it is closed, 0: none
	heard   atomic.Int64 // tick at which something came last
	writing atomic.Int64 // tick at which a write began, 0: none is

	// Of the reading goroutine.
	buf        []byte
	start, end int // of what has not been handled
	calm       int

	mu      sync.Mutex
	begun   bool // the preface has come
	settled bool // and the first SETTINGS
	partial int64
	batch   *batch
	waiting *batch
	flights int

	streams  map[uint32]*stream
	free     []*stream
	last     uint32 // greatest stream so far
	gathered int    // bytes of unfinished requests
	credit   int64  // received since the last WINDOW_UPDATE
	active   int64  // tick of the last stream

	resetIDs  [rememberIDs]uint32
	nextReset int
	lastEnded uint32

	block     block
	head      head
	decoder   *hpack.Decoder
	blocks    []remembered
	nextBlock int

	out       []byte
	encoded   bytes.Buffer
	encoder   *hpack.Encoder
	headOK    []byte
	trailerOK []byte

	peerFrame  int
	peerWindow int64
	window     int64
	blocked    []*stream
	unsent     int

	controls, resets, recent int // in this second
	pinged                   int64

	drain   drainState
	drained int64 // tick at which it began
	grace   int64 // ticks for it, 0: no limit
	closing bool  // nothing is sent any more, what comes is thrown away
	closed  int64 // tick of that
	dead    bool
}

var buffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

func putBuffer(b []byte) {
	if cap(b) == largeBuffer {
		buffers.Put((*[largeBuffer]byte)(b[:largeBuffer]))
	}
}

func (s *Server) newConn(nc net.Conn) *conn {
	c := &conn{
		server: s, net: nc, opened: s.tick.Load(), streams: make(map[uint32]*stream),
		peerFrame: maxFrame, peerWindow: firstWindow, window: firstWindow,
		buf: make([]byte, smallBuffer),
	}
	c.heard.Store(c.opened)
	c.active = c.opened
	c.decoder = hpack.NewDecoder(maxTableSize, c.field)
	c.decoder.SetMaxStringLength(maxBlock)
	c.encoder = hpack.NewEncoder(&c.encoded)
	return c
}

// preface checks what a connection begins with. It reports whether all of it is there.
func (c *conn) preface() (bool, error) {
	b := c.buf[c.start:c.end]
	n := min(len(b), len(http2.ClientPreface))
	if string(b[:n]) != http2.ClientPreface[:n] {
		if isHTTP1(b) {
			c.out = append(c.output(), http1Answer...)
			return false, errHTTP1
		}
		if mayBeHTTP1(b) {
			return false, nil
		}
		return false, protocolError("the connection does not begin with the preface of HTTP/2")
	}
	if n < len(http2.ClientPreface) {
		return false, nil
	}
	c.start += n
	c.begun = true
	o := &c.server.options
	c.out = appendFrame(c.output(), 18, http2.FrameSettings, 0, 0)
	c.out = appendSetting(c.out, http2.SettingMaxConcurrentStreams, o.MaxConcurrentStreams)
	c.out = appendSetting(c.out, http2.SettingInitialWindowSize, uint32(c.server.window())) //nolint:gosec // bounded by setting
	c.out = appendSetting(c.out, http2.SettingMaxHeaderListSize, o.MaxHeaderListBytes)
	c.out = appendFrame(c.out, 4, http2.FrameWindowUpdate, 0, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(c.server.window())) //nolint:gosec // bounded by setting
	return true, nil
}

// serve handles a connection from its beginning.
func (c *conn) serve() {
	defer c.server.tasks.Done()
	if t, ok := c.net.(*tls.Conn); ok {
		if err := t.HandshakeContext(c.server.context); err != nil || t.ConnectionState().NegotiatedProtocol != "h2" {
			c.server.forget(c)
			return
		}
	}
	c.read()
}

// readOn goes on reading where another goroutine left.
func (c *conn) readOn() {
	defer c.server.tasks.Done()
	c.read()
}

// read reads and handles what has arrived until the connection ends or another goroutine reads.
func (c *conn) read() {
	for {
		c.makeRoom()
		n, readErr := c.net.Read(c.buf[c.end:])
		c.heard.Store(c.server.tick.Load())
		c.mu.Lock()
		c.end += n
		b := c.arrived()
		c.mu.Unlock()
		if b != nil && !c.handle(b) {
			return
		}
		if readErr != nil {
			c.server.forget(c)
			return
		}
	}
}

// arrived handles what has been read. It returns the calls to handle now, nil if there are none.
func (c *conn) arrived() *batch {
	if c.closing {
		c.start = c.end
		return nil
	}
	if err := c.consume(); err != nil {
		c.abort(err)
		return nil
	}
	c.partial = 0
	if c.start < c.end || c.block.stream != 0 {
		c.partial = c.server.tick.Load()
	}
	if c.unsent > maxUnsent {
		c.abort(&connError{http2.ErrCodeEnhanceYourCalm, "answers are asked for but not read"})
		return nil
	}
	b := c.batch
	if b != nil {
		c.batch = nil
		b.forgetCancelled(0)
		if len(b.streams) == 0 {
			b.release()
			b = nil
		}
	}
	if b == nil {
		c.flush()
		c.endIfDrained()
		return nil
	}
	c.active = c.server.tick.Load()
	b.arrived = c.server.now()
	b.reading = true
	return b
}

// postpone keeps call number i of b until a batch under way has ended.
func (c *conn) postpone(b *batch, i int) {
	if c.waiting == nil {
		c.waiting = batches.Get().(*batch) //nolint:forcetypeassert // the pool holds nothing else
		c.waiting.conn, c.waiting.arrived = c, b.arrived
	}
	c.keep(b.streams[i], b.calls[i].Request, c.waiting)
}

// keep adds a call to a batch that outlives the buffer that its request is in.
func (c *conn) keep(s *stream, request []byte, to *batch) {
	if s.cancelled || c.closing {
		s.queued = false
		c.drop(s)
		return
	}
	if len(s.data) == 0 {
		if c.gathered+len(request) > 4*c.server.options.MaxMessageBytes {
			s.queued = false
			c.respond(s, codes.ResourceExhausted, "too many bytes of waiting requests on this connection", nil)
			return
		}
		s.data = append(s.data[:0], request...)
		c.gathered += len(s.data)
		request = s.data
	}
	to.add(s, request)
}

// handOver lets another goroutine read: the one that did waits in a handler, for b.
func (c *conn) handOver(b *batch) {
	if !b.reading || c.dead {
		return
	}
	b.reading = false
	b.buf = c.buf
	rest := c.buf[c.start:c.end]
	c.buf = buffers.Get().(*[largeBuffer]byte)[:] //nolint:forcetypeassert // the pool holds nothing else
	c.start, c.end = 0, copy(c.buf, rest)
	c.server.tasks.Add(1)
	go c.readOn()
}

// makeRoom prepares the buffer for the next read. Nothing refers to what is in it any more but the rest of a frame.
func (c *conn) makeRoom() {
	if c.end == len(c.buf) && len(c.buf) < largeBuffer {
		old := c.buf
		c.buf = buffers.Get().(*[largeBuffer]byte)[:] //nolint:forcetypeassert // the pool holds nothing else
		c.start, c.end = 0, copy(c.buf, old[c.start:c.end])
		c.calm = 0
		return
	}
	full := c.end > smallBuffer
	if c.start > 0 {
		c.start, c.end = 0, copy(c.buf, c.buf[c.start:c.end])
	}
	if full || c.end > 0 {
		c.calm = 0
	} else if c.calm++; c.calm >= calmReads && len(c.buf) > smallBuffer {
		putBuffer(c.buf)
		c.buf, c.calm = make([]byte, smallBuffer), 0
	}
}

// output returns what is to be written, so that it can be appended to.
func (c *conn) output() []byte {
	if c.out == nil {
		c.out = buffers.Get().(*[largeBuffer]byte)[:0] //nolint:forcetypeassert // the pool holds nothing else
	}
	return c.out
}

// flush writes what there is. A peer that does not read is cut off by the sweep.
func (c *conn) flush() {
	if len(c.out) == 0 {
		return
	}
	if !c.dead && !c.closing {
		c.writing.Store(c.server.tick.Load() + 1)
		_, err := c.net.Write(c.out)
		c.writing.Store(0)
		if err != nil {
			c.kill()
		}
	}
	putBuffer(c.out)
	c.out = nil
}

// abort ends the connection because of what the peer has sent.
func (c *conn) abort(err error) {
	if b := c.batch; b != nil {
		c.batch = nil
		for _, s := range b.streams {
			c.drop(s)
		}
		b.release()
	}
	if fault := (*connError)(nil); errors.As(err, &fault) {
		c.appendGoAway(c.last, fault.code, fault.reason)
	}
	c.linger()
}

// linger ends the connection once the peer has had a chance to read what was sent to it: closing with unread bytes would
// take it away.
func (c *conn) linger() {
	c.flush()
	c.closing, c.closed = true, c.server.tick.Load()
	if half, ok := c.net.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		c.kill()
	}
}

// kill ends the connection. The reading goroutine finds out by itself.
func (c *conn) kill() {
	c.dead, c.closing = true, true
	_ = closeNow(c.net)
}

var errHTTP1 = errors.New("the client speaks HTTP/1")
