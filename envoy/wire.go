package envoy

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// appendUint appends a varint field; 0 is the default and is left out.
func appendUint(dst []byte, field protowire.Number, value uint64) []byte {
	if value == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), value)
}

// appendText appends a string or bytes field; the empty one is the default and is left out.
func appendText[T string | []byte](dst []byte, field protowire.Number, value T) []byte {
	if len(value) == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// appendWrapped appends a message whose only field is a varint.
func appendWrapped(dst []byte, field, inner protowire.Number, value uint64) []byte {
	dst, start := begin(dst, field)
	return end(appendUint(dst, inner, value), start)
}

// begin appends the tag of a field whose length is not known yet, and a byte for the length. end needs the returned start.
func begin(dst []byte, field protowire.Number) (out []byte, start int) {
	dst = append(protowire.AppendTag(dst, field, protowire.BytesType), 0)
	return dst, len(dst)
}

// end writes the length of what was appended since start. One that needs more than the byte left for it moves the content.
func end(dst []byte, start int) []byte {
	length := len(dst) - start
	if length < 0x80 {
		dst[start-1] = byte(length)
		return dst
	}
	more := protowire.SizeVarint(uint64(length)) - 1
	for range more {
		dst = append(dst, 0)
	}
	copy(dst[start+more:], dst[start:start+length])
	binary.PutUvarint(dst[start-1:], uint64(length))
	return dst
}
