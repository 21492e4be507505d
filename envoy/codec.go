package envoy

import (
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Codec returns a codec that passes this package's messages on as the bytes that they are, and leaves all other types to
// grpc-go's codec for protobuf, under whose name it stands.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*reply); ok {
		return mem.BufferSlice{mem.NewBuffer((*[]byte)(r), replies)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*request); ok {
		r.release()
		r.buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// replies holds the buffers of replies. They are larger than what grpc-go pools (1 KiB), so that it gives them back, and a
// reply to any usual request fits.
var replies = &replyPool{pool: sync.Pool{New: func() any {
	b := make([]byte, 0, usualReply)
	return &b
}}}

const (
	usualReply = 2 << 10
	keepReply  = 64 << 10
)

type replyPool struct{ pool sync.Pool }

// Get returns a buffer of the length asked for.
func (p *replyPool) Get(length int) *[]byte {
	b := p.pool.Get().(*[]byte)
	if cap(*b) < length {
		*b = make([]byte, length)
	}
	*b = (*b)[:length]
	return b
}

// Put takes a buffer back.
func (p *replyPool) Put(b *[]byte) {
	if cap(*b) > keepReply {
		return
	}
	*b = (*b)[:0]
	p.pool.Put(b)
}
