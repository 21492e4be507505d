package fastgrpc

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	maxBlock         = 64 << 10 // bytes of a header block, before it is decoded
	maxContinuations = 16       // frames that go on with a header block
	rememberedBlocks = 4
	rememberedBytes  = 1 << 10
)

// head is what matters of a request's header.
type head struct {
	path, method, contentType, encoding string

	kept string // the value of Options.KeepHeader

	timeout       time.Duration // 0: none
	contentLength int64         // -1: none

	size      uint32 // as RFC 9113 counts it
	malformed string // what is wrong by the rules of HTTP/2
	badField  string // what is wrong by those of gRPC

	scheme, regular, trailer bool
}

// block is a header block that is being received, its frames joined.
type block struct {
	stream        uint32 // 0: none is
	data          []byte
	end           bool // END_STREAM
	continuations int
	depends       bool // on itself
}

// remembered is a header block that decodes to the same as long as the table does not change.
type remembered struct {
	data []byte
	head head
}

func (c *conn) headersFrame(flags http2.Flags, id uint32, payload []byte) error {
	if id == 0 {
		return protocolError("HEADERS without a stream")
	}
	payload, err := unpad(flags, payload)
	if err != nil {
		return err
	}
	c.block.depends = false
	if flags.Has(http2.FlagHeadersPriority) {
		if len(payload) < 5 {
			return sizeError("HEADERS too short for their priority")
		}
		c.block.depends = binary.BigEndian.Uint32(payload)&maxWindow == id
		payload = payload[5:]
	}
	c.block.end = flags.Has(http2.FlagHeadersEndStream)
	if flags.Has(http2.FlagHeadersEndHeaders) {
		return c.headerBlock(id, payload)
	}
	c.block.stream, c.block.continuations = id, 0
	c.block.data = append(c.block.data[:0], payload...)
	return nil
}

func (c *conn) continuationFrame(flags http2.Flags, id uint32, payload []byte) error {
	if c.block.stream == 0 {
		return protocolError("CONTINUATION without HEADERS")
	}
	c.block.continuations++
	if c.block.continuations > maxContinuations || len(c.block.data)+len(payload) > maxBlock {
		return &connError{http2.ErrCodeEnhanceYourCalm, "the header block is too large"}
	}
	c.block.data = append(c.block.data, payload...)
	if !flags.Has(http2.FlagContinuationEndHeaders) {
		return nil
	}
	c.block.stream = 0
	err := c.headerBlock(id, c.block.data)
	c.block.data = nil // rarely needed again
	return err
}

// headerBlock handles a whole header block. Whatever becomes of its stream, it must be decoded: the next one builds on it.
func (c *conn) headerBlock(id uint32, data []byte) error {
	s := c.streams[id]
	h, err := c.decodeBlock(data, s != nil)
	if err != nil {
		return err
	}
	switch {
	case s != nil:
		c.trailers(s, h)
		return nil
	case id%2 == 0:
		return protocolError("a client's streams have odd numbers")
	case id <= c.last:
		if c.wasReset(id) {
			return nil // sent before the peer knew
		}
		if id == c.lastEnded {
			return &connError{http2.ErrCodeStreamClosed, "HEADERS on a stream that has ended"}
		}
		return protocolError("HEADERS on a stream that has ended, or was skipped")
	case c.drain == drainRefusing:
		return nil // RFC 9113, 6.8: the peer knows that it is not handled
	}
	c.last = id
	switch {
	case c.block.depends:
		c.resetID(id, http2.ErrCodeProtocol)
	case h.malformed != "":
		c.resetID(id, http2.ErrCodeProtocol)
	case len(c.streams) >= int(c.server.options.MaxConcurrentStreams):
		if err := c.spend(1); err != nil {
			return err
		}
		c.resetID(id, http2.ErrCodeRefusedStream)
	default:
		c.open(id, h)
	}
	return nil
}

// decodeBlock returns what a header block says. The result is valid until the next call.
func (c *conn) decodeBlock(data []byte, trailer bool) (*head, error) {
	if !trailer {
		for i := range c.blocks {
			if r := &c.blocks[i]; len(r.data) == len(data) && bytes.Equal(r.data, data) {
				return &r.head, nil
			}
		}
	}
	c.head = head{contentLength: -1, trailer: trailer}
	c.decoder.SetEmitEnabled(true)
	_, err := c.decoder.Write(data)
	if closeErr := c.decoder.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, &connError{http2.ErrCodeCompression, "a header block cannot be decoded"}
	}
	h := &c.head
	if !trailer && h.malformed == "" && (h.method == "" || h.path == "" || !h.scheme) {
		h.malformed = "a pseudo-header field is missing"
	}
	if !pure(data) {
		for i := range c.blocks {
			c.blocks[i].data = c.blocks[i].data[:0] // their indexes mean other fields now
		}
	} else if !trailer && len(data) > 0 && len(data) <= rememberedBytes {
		if c.blocks == nil {
			c.blocks = make([]remembered, rememberedBlocks)
		}
		r := &c.blocks[c.nextBlock%rememberedBlocks]
		c.nextBlock++
		r.data, r.head = append(r.data[:0], data...), *h
	}
	return h, nil
}

// field is called for each field of a header block.
func (c *conn) field(f hpack.HeaderField) {
	h := &c.head
	h.size += f.Size()
	if h.size > c.server.options.MaxHeaderListBytes {
		c.decoder.SetEmitEnabled(false) // a small block can stand for a huge list
		return
	}
	if keep := c.server.options.KeepHeader; keep != "" && f.Name == keep {
		h.kept = f.Value
	}
	h.add(f.Name, f.Value)
}

func (h *head) add(name, value string) {
	if strings.HasPrefix(name, ":") {
		h.pseudo(name, value)
		return
	}
	h.regular = true
	switch name {
	case "content-type":
		h.contentType = value
	case "grpc-timeout":
		timeout, ok := parseTimeout(value)
		if !ok {
			h.badField = "malformed grpc-timeout"
		}
		h.timeout = max(timeout, 1)
	case "grpc-encoding":
		h.encoding = value
	case "content-length":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || h.contentLength >= 0 && h.contentLength != n {
			h.malformed = "a broken content-length"
		}
		h.contentLength = n
	case "te":
		if value != "trailers" {
			h.malformed = "te other than trailers"
		}
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		h.malformed = "a field of HTTP/1"
	default:
		if !validName(name) {
			h.malformed = "a broken field name"
		}
	}
	if strings.ContainsAny(value, "\x00\r\n") {
		h.malformed = "a broken field value"
	}
}

func (h *head) pseudo(name, value string) {
	if h.regular || h.trailer {
		h.malformed = "a pseudo-header field out of place"
		return
	}
	twice := false
	switch name {
	case ":method":
		twice, h.method = h.method != "", value
	case ":path":
		twice, h.path = h.path != "", value
	case ":scheme":
		twice, h.scheme = h.scheme, true
	case ":authority":
	default:
		h.malformed = "an unknown pseudo-header field"
	}
	if twice {
		h.malformed = "a pseudo-header field that comes twice"
	}
}

// validName reports whether name is a field name: a lower-case token.
func validName(name string) bool {
	for i := range len(name) {
		switch b := name[i]; {
		case b >= 'a' && b <= 'z', b >= '0' && b <= '9', b == '-', b == '_':
		case strings.IndexByte("!#$%&'*+.^`|~", b) >= 0:
		default:
			return false
		}
	}
	return name != ""
}

// grpc reports whether the content-type is one of gRPC with protobuf messages.
func (h *head) grpc() bool {
	rest, ok := strings.CutPrefix(h.contentType, "application/grpc")
	return ok && (rest == "" || rest == "+proto" || rest[0] == ';' || strings.HasPrefix(rest, "+proto;"))
}

// pure reports whether a valid header block leaves the table of its decoder as it was (RFC 7541, 6).
func pure(data []byte) bool {
	for len(data) > 0 {
		var ok bool
		switch first := data[0]; {
		case first&0x80 != 0: // indexed
			if _, data, ok = integer(data, 7); !ok {
				return false
			}
		case first&0xe0 == 0: // a literal that is not added
			var index uint64
			if index, data, ok = integer(data, 4); !ok {
				return false
			}
			if index == 0 {
				if data, ok = skipString(data); !ok {
					return false
				}
			}
			if data, ok = skipString(data); !ok {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// integer reads an integer with a prefix of n bits (RFC 7541, 5.1).
func integer(data []byte, n uint) (value uint64, rest []byte, ok bool) {
	if len(data) == 0 {
		return 0, nil, false
	}
	limit := uint64(1)<<n - 1
	value, data = uint64(data[0])&limit, data[1:]
	if value < limit {
		return value, data, true
	}
	for shift := uint(0); len(data) > 0 && shift < 32; shift += 7 {
		b := data[0]
		data = data[1:]
		value += uint64(b&0x7f) << shift
		if b&0x80 == 0 {
			return value, data, true
		}
	}
	return 0, nil, false
}

func skipString(data []byte) (rest []byte, ok bool) {
	length, data, ok := integer(data, 7)
	if !ok || length > uint64(len(data)) {
		return nil, false
	}
	return data[length:], true
}
