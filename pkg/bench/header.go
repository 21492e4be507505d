package bench

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	methodPath = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

	maxHeaderBlock  = 64 << 10 // bytes of a reply's headers
	maxHeaderString = 16 << 10

	defaultTableSize = 4096 // of HPACK, by RFC 7541

	// indexed is set in the first byte of a field that stands in a table. moreIndex is a first byte whose index goes on.
	indexed   = 0x80
	moreIndex = 0xff
)

// requestHeader writes the header block of calls: the fields that Envoy's filter sends. All calls have the same fields, so
// from the second one on the block is the same bytes, all of them references to HPACK's tables.
type requestHeader struct {
	fields  []hpack.HeaderField
	buffer  bytes.Buffer
	encoder *hpack.Encoder
	last    []byte
	settled bool // last is what every further call has
}

func newRequestHeader(authority string, timeout time.Duration) *requestHeader {
	h := &requestHeader{fields: []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":path", Value: methodPath},
		{Name: ":authority", Value: authority},
		{Name: ":scheme", Value: "http"},
		{Name: "te", Value: "trailers"},
		{Name: "grpc-timeout", Value: strconv.FormatInt(timeout.Milliseconds(), 10) + "m"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "x-envoy-internal", Value: "true"},
		{Name: "x-forwarded-for", Value: "127.0.0.1"},
	}}
	h.encoder = hpack.NewEncoder(&h.buffer)
	h.encoder.SetMaxDynamicTableSizeLimit(defaultTableSize)
	return h
}

// limit bounds the table as the server asks.
func (h *requestHeader) limit(tableSize uint32) {
	h.encoder.SetMaxDynamicTableSizeLimit(min(tableSize, defaultTableSize))
	h.encoder.SetMaxDynamicTableSize(min(tableSize, defaultTableSize))
	h.last, h.settled = nil, false
}

// block is the header block of the next call, valid until the next one.
func (h *requestHeader) block() ([]byte, error) {
	if h.settled {
		return h.last, nil
	}
	h.buffer.Reset()
	for _, field := range h.fields {
		if err := h.encoder.WriteField(field); err != nil {
			return nil, err
		}
	}
	h.settled = allIndexed(h.buffer.Bytes())
	h.last = append(h.last[:0], h.buffer.Bytes()...)
	return h.last, nil
}

// allIndexed tells whether each byte of a block is a reference to a table's entry: then the block changes no table.
func allIndexed(block []byte) bool {
	for _, b := range block {
		if b < indexed || b == moreIndex {
			return false
		}
	}
	return len(block) > 0
}

// replyHeader is what is checked of a reply's headers and trailers.
type replyHeader struct {
	status     string // of HTTP
	grpcStatus string
	message    string // of gRPC
}

// headerReader reads header blocks. One that holds nothing but references to HPACK's tables means the same as the last time,
// as long as the tables have not changed; servers send little else.
type headerReader struct {
	decoder *hpack.Decoder
	found   replyHeader
	size    int
	known   []knownBlock
}

type knownBlock struct {
	block  []byte
	header replyHeader
}

const maxKnown = 4

func newHeaderReader() *headerReader {
	h := &headerReader{}
	h.decoder = hpack.NewDecoder(defaultTableSize, h.field)
	h.decoder.SetMaxStringLength(maxHeaderString)
	return h
}

func (h *headerReader) field(field hpack.HeaderField) {
	h.size += int(field.Size())
	switch field.Name {
	case ":status":
		h.found.status = field.Value
	case "grpc-status":
		h.found.grpcStatus = field.Value
	case "grpc-message":
		h.found.message = field.Value
	}
}

var errHeaderTooLarge = fmt.Errorf("a reply has more than %d bytes of headers", maxHeaderBlock)

func (h *headerReader) read(block []byte) (replyHeader, error) {
	for i := range h.known {
		if bytes.Equal(h.known[i].block, block) {
			return h.known[i].header, nil
		}
	}
	h.found, h.size = replyHeader{}, 0
	if _, err := h.decoder.Write(block); err != nil {
		return replyHeader{}, headerError(err)
	}
	if err := h.decoder.Close(); err != nil {
		return replyHeader{}, headerError(err)
	}
	if h.size > maxHeaderBlock {
		return replyHeader{}, errHeaderTooLarge
	}
	switch {
	case !allIndexed(block):
		h.known = h.known[:0] // the tables may have changed
	case len(h.known) < maxKnown:
		h.known = append(h.known, knownBlock{bytes.Clone(block), h.found})
	}
	return h.found, nil
}

func headerError(err error) error {
	return errors.Join(http2.ConnectionError(http2.ErrCodeCompression), fmt.Errorf("a reply's headers: %w", err))
}
