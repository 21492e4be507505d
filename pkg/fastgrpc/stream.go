package fastgrpc

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
)

const messagePrefix = 5 // of a gRPC message: whether it is compressed, and its length

// stream is one call, from its HEADERS until everything about it has been sent. It stays in its connection's table while it
// is handled even if the peer has cancelled it, so that it counts against the bound on streams.
type stream struct {
	id      uint32
	method  *Method // nil: not a gRPC call
	timeout time.Duration
	encoded bool   // grpc-encoding is not identity
	kept    string // the value of Options.KeepHeader
	opened  int64

	data     []byte // the message so far, with its prefix, if it came in several frames
	received int64
	length   int64 // content-length, -1 if unknown
	window   int64 // for what is sent
	granted  int64 // for what is received

	ended     bool // the peer has sent END_STREAM
	queued    bool // in a batch
	batch     *batch
	flag      *atomic.Bool // Cancelled of its call in the batch
	cancelled bool         // nobody waits for the answer

	answer   []byte // what is left to send for want of window
	trailer  bool   // trailers follow
	answered int64  // tick at which the answer began
	blocked  bool   // waits for the connection's window
}

// open begins a stream.
func (c *conn) open(id uint32, h *head) {
	s := c.newStream()
	*s = stream{
		id: id, timeout: h.timeout, opened: c.server.tick.Load(), length: h.contentLength,
		window: c.peerWindow, granted: c.server.window(), ended: c.block.end, data: s.data[:0],
		encoded: h.encoding != "" && h.encoding != "identity", kept: h.kept,
	}
	c.streams[id] = s
	if h.size > c.server.options.MaxHeaderListBytes {
		c.refuse(s, "431", codes.ResourceExhausted, "the header is too large")
		return
	}
	if !h.grpc() {
		if s.ended {
			c.complete(s, nil)
		}
		return
	}
	s.method = c.server.methods[h.path]
	switch {
	case h.badField != "":
		c.refuse(s, "400", codes.Internal, h.badField)
	case h.method != "POST":
		c.refuse(s, "405", codes.Internal, fmt.Sprintf("the method is %q and should be POST", h.method))
	case s.method == nil:
		c.refuse(s, "200", codes.Unimplemented, c.server.unknown(h.path))
	case s.ended:
		c.complete(s, nil)
	}
}

// unknown tells a client what is wrong with the path of a method that is not there.
func (s *Server) unknown(path string) string {
	at := strings.LastIndexByte(path, '/')
	if at <= 0 || path[0] != '/' {
		return fmt.Sprintf("malformed method name: %q", path)
	}
	service, name := path[1:at], path[at+1:]
	for known := range s.methods {
		if strings.HasPrefix(known, path[:at+1]) {
			return fmt.Sprintf("unknown method %s for service %s", name, service)
		}
	}
	return "unknown service " + service
}

func (c *conn) dataFrame(flags http2.Flags, id uint32, payload []byte) error {
	if id == 0 {
		return protocolError("DATA without a stream")
	}
	size := int64(len(payload))
	payload, err := unpad(flags, payload)
	if err != nil {
		return err
	}
	if c.credit += size; c.credit > firstWindow+c.server.window() {
		return &connError{http2.ErrCodeFlowControl, "more DATA than the connection's window"}
	}
	if c.credit >= c.server.window()/2 {
		c.out = appendFrame(c.output(), 4, http2.FrameWindowUpdate, 0, 0)
		c.out = binary.BigEndian.AppendUint32(c.out, uint32(c.credit)) //nolint:gosec // bounded above
		c.credit = 0
	}
	end := flags.Has(http2.FlagDataEndStream)
	if len(payload) < 64 && !end {
		if err := c.spend(1); err != nil {
			return err
		}
	}
	s := c.streams[id]
	switch {
	case s == nil && id > c.last:
		return protocolError("DATA on an idle stream")
	case s == nil:
		if !c.wasReset(id) {
			if err := c.spend(1); err != nil {
				return err
			}
			c.resetID(id, http2.ErrCodeStreamClosed)
		}
		return nil
	case s.ended:
		c.fail(s, http2.ErrCodeStreamClosed)
		return nil
	}
	s.received += int64(len(payload))
	if s.granted -= size; s.granted < 0 {
		c.fail(s, http2.ErrCodeFlowControl)
		return nil
	}
	if s.length >= 0 && (s.received > s.length || end && s.received != s.length) {
		c.fail(s, http2.ErrCodeProtocol)
		return nil
	}
	s.ended = end
	switch {
	case s.cancelled || s.answer != nil: // answered early
	case s.method == nil:
		if s.received > int64(c.server.options.MaxMessageBytes) && !end {
			c.sendPlain(s)
			return nil
		}
		if end {
			c.complete(s, nil)
		}
	case end && len(s.data) == 0:
		c.complete(s, payload) // the usual case: one frame, handled where it was read
	default:
		c.gather(s, payload)
	}
	return nil
}

// gather keeps a part of a message.
func (c *conn) gather(s *stream, payload []byte) {
	s.data = append(s.data, payload...)
	c.gathered += len(payload)
	most := c.server.options.MaxMessageBytes
	var problem string
	if len(s.data) >= messagePrefix {
		if length := binary.BigEndian.Uint32(s.data[1:]); int64(length) > int64(most) {
			problem = tooLarge(int64(length), most)
		} else if int64(len(s.data)) > int64(length)+messagePrefix {
			c.reject(s, codes.Internal, "more than one message for a unary method")
			return
		}
	}
	if problem == "" && c.gathered > 4*most {
		problem = "too many bytes of unfinished requests on this connection"
	}
	if problem != "" {
		c.reject(s, codes.ResourceExhausted, problem)
		return
	}
	if s.ended {
		c.complete(s, s.data)
	}
}

func tooLarge(length int64, most int) string {
	return fmt.Sprintf("received message larger than max (%d vs. %d)", length, most)
}

// trailers ends the request by a header block after its data.
func (c *conn) trailers(s *stream, h *head) {
	switch {
	case s.ended:
		c.fail(s, http2.ErrCodeStreamClosed)
	case !c.block.end || h.malformed != "" || s.length >= 0 && s.received != s.length:
		c.fail(s, http2.ErrCodeProtocol)
	default:
		s.ended = true
		if !s.cancelled && s.answer == nil {
			c.complete(s, s.data)
		}
	}
}

// complete adds a request that is there completely to the batch, or answers it at once. message is in the read buffer or s.data.
func (c *conn) complete(s *stream, message []byte) {
	if s.method == nil {
		if s.length > 0 && s.received != s.length {
			c.fail(s, http2.ErrCodeProtocol)
			return
		}
		c.sendPlain(s)
		return
	}
	if s.length > 0 && s.received == 0 {
		c.fail(s, http2.ErrCodeProtocol)
		return
	}
	if len(message) < messagePrefix {
		c.reject(s, codes.Internal, "the request has no message")
		return
	}
	length, body := int64(binary.BigEndian.Uint32(message[1:])), message[messagePrefix:]
	switch {
	case length > int64(c.server.options.MaxMessageBytes):
		c.reject(s, codes.ResourceExhausted, tooLarge(length, c.server.options.MaxMessageBytes))
	case length > int64(len(body)):
		c.reject(s, codes.Internal, "the request ends within its message")
	case length < int64(len(body)):
		c.reject(s, codes.Internal, "more than one message for a unary method")
	case message[0] > 1:
		c.reject(s, codes.Internal, fmt.Sprintf("the message has the unknown flag %d", message[0]))
	case message[0] == 1:
		c.reject(s, codes.Internal, "compressed flag set with identity or empty encoding")
	default:
		s.queued = true
		if c.batch == nil {
			c.batch = batches.Get().(*batch) //nolint:forcetypeassert // the pool holds nothing else
			c.batch.conn = c
		}
		c.batch.add(s, body)
	}
}

// reject answers a message that is not as it should be. The reason may be that it is compressed.
func (c *conn) reject(s *stream, code codes.Code, message string) {
	if s.encoded {
		code, message = codes.Unimplemented, "compressed messages are not supported"
	}
	c.respond(s, code, message, nil)
}

// cancel ends a stream that the peer has reset.
func (c *conn) cancel(s *stream) {
	if !s.queued {
		c.drop(s)
		return
	}
	c.abandon(s)
}

// abandon tells that nobody waits for a call that is in a batch, which goes on holding it. Its handler is told, and may stop if
// it waits for such calls alone.
func (c *conn) abandon(s *stream) {
	if s.cancelled {
		return
	}
	s.cancelled = true
	s.flag.Store(true)
	if b := s.batch; b.running != nil {
		if b.live--; b.live == 0 {
			b.running.cancel()
		}
	}
}

// fail resets a stream.
func (c *conn) fail(s *stream, code http2.ErrCode) {
	c.resetID(s.id, code)
	if s.queued {
		c.abandon(s)
		return
	}
	c.drop(s)
}

// resetID resets a stream that is not, or no more, in the table.
func (c *conn) resetID(id uint32, code http2.ErrCode) {
	c.out = appendFrame(c.output(), 4, http2.FrameRSTStream, 0, id)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
	c.resetIDs[c.nextReset%len(c.resetIDs)] = id
	c.nextReset++
}

// wasReset reports whether the stream was reset lately, so that the peer may not have known when it went on.
func (c *conn) wasReset(id uint32) bool {
	for _, other := range c.resetIDs {
		if other == id {
			return true
		}
	}
	return false
}
