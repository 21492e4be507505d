package fastgrpc

import (
	"encoding/binary"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

const (
	maxOutput     = 256 << 10 // bytes gathered before they are written
	maxUnsent     = 4 << 20   // bytes of answers that wait for the peer's windows
	keptAnswer    = 16 << 10
	emptyPercents = 64
)

// notGRPC is what a client that does not speak gRPC is told.
var notGRPC = []byte("gRPC only: the content-type is application/grpc\n")

// respond answers a call that is neither queued nor answered yet.
func (c *conn) respond(s *stream, code codes.Code, message string, reply []byte) {
	if code != codes.OK {
		c.refuse(s, "200", code, message)
		return
	}
	c.appendHeaders(s.id, http2.FlagHeadersEndHeaders, c.headBlock())
	if size := int64(messagePrefix + len(reply)); size > min(s.window, c.window) || len(reply)+messagePrefix > c.peerFrame {
		s.answer = binary.BigEndian.AppendUint32([]byte{0}, uint32(len(reply))) //nolint:gosec // replies are small
		s.answer = append(s.answer, reply...)
		s.trailer = true
		c.send(s)
		return
	}
	n := messagePrefix + len(reply)
	c.out = append(appendFrame(c.output(), n, http2.FrameData, 0, s.id), 0)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(reply))) //nolint:gosec // replies are small
	c.out = append(c.out, reply...)
	c.window -= int64(n)
	c.finish(s)
}

// refuse answers a call by a status alone.
func (c *conn) refuse(s *stream, httpStatus string, code codes.Code, message string) {
	c.encoded.Reset()
	c.encode(":status", httpStatus, false)
	c.encode("content-type", "application/grpc", false)
	c.encode("grpc-status", strconv.Itoa(int(code)), code != codes.OK)
	if message != "" {
		c.encode("grpc-message", string(appendMessage(make([]byte, 0, len(message)+emptyPercents), message)), true)
	}
	if s.encoded && code == codes.Unimplemented {
		c.encode("grpc-accept-encoding", "identity", true)
	}
	c.appendHeaders(s.id, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, c.encodedBlock())
	c.close(s)
}

// sendPlain answers a request that is not gRPC.
func (c *conn) sendPlain(s *stream) {
	c.encoded.Reset()
	c.encode(":status", "415", true)
	c.encode("content-type", "text/plain; charset=utf-8", true)
	c.appendHeaders(s.id, http2.FlagHeadersEndHeaders, c.encodedBlock())
	s.answer = notGRPC
	c.send(s)
}

// send begins to send a stream's answer.
func (c *conn) send(s *stream) {
	s.answered = c.server.tick.Load()
	c.unsent += len(s.answer)
	c.advance(s)
}

// advance sends what the windows allow of a stream's answer. A stream that lacks the connection's window joins c.blocked, one
// that lacks its own is called for when that grows.
func (c *conn) advance(s *stream) {
	for len(s.answer) > 0 {
		n := int(min(int64(len(s.answer)), s.window, c.window, int64(c.peerFrame)))
		if n <= 0 {
			if s.window > 0 && !s.blocked {
				s.blocked = true
				c.blocked = append(c.blocked, s)
			}
			return
		}
		var flags http2.Flags
		if n == len(s.answer) && !s.trailer {
			flags = http2.FlagDataEndStream
		}
		c.out = append(appendFrame(c.output(), n, http2.FrameData, flags, s.id), s.answer[:n]...)
		c.window -= int64(n)
		s.window -= int64(n)
		c.unsent -= n
		s.answer = s.answer[n:]
		if len(c.out) >= maxOutput {
			c.flush()
		}
	}
	if s.trailer {
		c.finish(s)
	} else {
		c.close(s)
	}
}

// pump sends what has waited for the connection's window, oldest first.
func (c *conn) pump() {
	done := 0
	for done < len(c.blocked) && c.window > 0 {
		s := c.blocked[done]
		done++
		s.blocked = false
		if !s.cancelled {
			c.advance(s) // may join again, at the end: the window is used up then
		}
	}
	if done == 0 && len(c.blocked) > 2*len(c.streams)+maxFreeStreams { // mostly cancelled ones
		c.blocked = slices.DeleteFunc(c.blocked, func(s *stream) bool { return s.cancelled })
		return
	}
	c.blocked = slices.Delete(c.blocked, 0, done)
}

// finish sends the trailers of a call that went well.
func (c *conn) finish(s *stream) {
	c.appendHeaders(s.id, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, c.trailerBlock())
	c.close(s)
}

// close ends a stream whose answer has been sent.
func (c *conn) close(s *stream) {
	if !s.ended {
		c.resetID(s.id, http2.ErrCodeNo) // RFC 9113, 8.1: no need to send the rest
	} else {
		c.lastEnded = s.id
	}
	c.drop(s)
}

// drop forgets a stream.
func (c *conn) drop(s *stream) {
	delete(c.streams, s.id)
	c.unsent -= len(s.answer)
	c.gathered -= len(s.data)
	s.answer, s.cancelled = nil, true
	if cap(s.data) > keptAnswer {
		s.data = nil
	}
	if s.answered != 0 {
		return // it may still be among the blocked
	}
	if len(c.free) < maxFreeStreams {
		c.free = append(c.free, s)
	} else {
		streams.Put(s)
	}
}

// A connection keeps a few streams for its next calls; more of them are shared by all.
const maxFreeStreams = 32

var streams = sync.Pool{New: func() any { return new(stream) }}

func (c *conn) newStream() *stream {
	if n := len(c.free) - 1; n >= 0 {
		s := c.free[n]
		c.free = c.free[:n]
		return s
	}
	return streams.Get().(*stream) //nolint:forcetypeassert // the pool holds nothing else
}

func (c *conn) appendHeaders(id uint32, flags http2.Flags, block []byte) {
	c.out = append(appendFrame(c.output(), len(block), http2.FrameHeaders, flags, id), block...)
}

// encode adds a field to c.encoded. One that is said to be rare stays out of the header table.
func (c *conn) encode(name, value string, rare bool) {
	_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: rare}) // a bytes.Buffer takes it
}

// encodedBlock returns the block in c.encoded. One that changes the header table makes those that are remembered wrong.
func (c *conn) encodedBlock() []byte {
	if !pure(c.encoded.Bytes()) {
		c.forgetBlocks()
	}
	return c.encoded.Bytes()
}

func (c *conn) forgetBlocks() { c.headOK, c.trailerOK = c.headOK[:0], c.trailerOK[:0] }

// headBlock returns the header of an answer.
func (c *conn) headBlock() []byte {
	if len(c.headOK) > 0 {
		return c.headOK
	}
	c.encoded.Reset()
	c.encode(":status", "200", false)
	c.encode("content-type", "application/grpc", false)
	block := c.encodedBlock()
	if pure(block) {
		c.headOK = append(c.headOK, block...)
	}
	return block
}

// trailerBlock returns the trailers of an answer.
func (c *conn) trailerBlock() []byte {
	if len(c.trailerOK) > 0 {
		return c.trailerOK
	}
	c.encoded.Reset()
	c.encode("grpc-status", "0", false)
	block := c.encodedBlock()
	if pure(block) {
		c.trailerOK = append(c.trailerOK, block...)
	}
	return block
}
