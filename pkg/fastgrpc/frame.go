package fastgrpc

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/http2"
)

const (
	frameHeader  = 9
	maxFrame     = 16 << 10 // the size of a frame's payload that we take, the least that RFC 9113 allows
	maxWindow    = 1<<31 - 1
	firstWindow  = 65535 // of a connection, and of a stream until the first SETTINGS
	maxTableSize = 4096  // of both header tables
)

// connError ends the connection.
type connError struct {
	code   http2.ErrCode
	reason string
}

func (e *connError) Error() string { return fmt.Sprintf("%s: %s", e.code, e.reason) }

func protocolError(reason string) error { return &connError{http2.ErrCodeProtocol, reason} }
func sizeError(reason string) error     { return &connError{http2.ErrCodeFrameSize, reason} }

// appendFrame appends the header of a frame.
func appendFrame(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

func appendSetting(b []byte, id http2.SettingID, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, uint16(id)), value)
}

// consume handles the frames that have arrived completely. What they ask for is in c.batch and c.out afterwards.
func (c *conn) consume() error {
	if !c.begun {
		if ok, err := c.preface(); !ok || err != nil {
			return err
		}
	}
	for {
		b := c.buf[c.start:c.end]
		if len(b) < frameHeader {
			return nil
		}
		length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if length > maxFrame {
			return sizeError("the frame is larger than SETTINGS_MAX_FRAME_SIZE")
		}
		if len(b) < frameHeader+length {
			return nil
		}
		c.start += frameHeader + length
		kind, flags := http2.FrameType(b[3]), http2.Flags(b[4])
		stream := binary.BigEndian.Uint32(b[5:]) & maxWindow
		if err := c.frame(kind, flags, stream, b[frameHeader:frameHeader+length]); err != nil {
			return err
		}
	}
}

// frame handles one frame.
func (c *conn) frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) error {
	switch {
	case !c.settled && (kind != http2.FrameSettings || flags.Has(http2.FlagSettingsAck)):
		return protocolError("the first frame is not SETTINGS")
	case c.block.stream != 0 && (kind != http2.FrameContinuation || stream != c.block.stream):
		return protocolError("a header block is interrupted by another frame")
	}
	switch kind { //nolint:exhaustive // the others follow
	case http2.FrameHeaders:
		return c.headersFrame(flags, stream, payload)
	case http2.FrameContinuation:
		return c.continuationFrame(flags, stream, payload)
	case http2.FrameData:
		return c.dataFrame(flags, stream, payload)
	}
	// What costs the peer nearly nothing is bounded.
	if err := c.spend(1); err != nil {
		return err
	}
	switch kind {
	case http2.FrameSettings:
		return c.settingsFrame(flags, stream, payload)
	case http2.FramePing:
		return c.pingFrame(flags, stream, payload)
	case http2.FrameWindowUpdate:
		return c.windowFrame(stream, payload)
	case http2.FrameRSTStream:
		return c.resetFrame(stream, payload)
	case http2.FramePriority:
		return c.priorityFrame(stream, payload)
	case http2.FrameGoAway:
		return c.goAwayFrame(stream, payload)
	case http2.FramePushPromise:
		return protocolError("a client does not push")
	default:
		return nil // RFC 9113, 4.1: unknown types are ignored
	}
}

// unpad takes the padding off the payload of a padded frame.
func unpad(flags http2.Flags, payload []byte) ([]byte, error) {
	if !flags.Has(http2.FlagDataPadded) { // the same bit in HEADERS
		return payload, nil
	}
	if len(payload) == 0 {
		return nil, sizeError("a padded frame without its padding's length")
	}
	n := int(payload[0])
	if n >= len(payload) {
		return nil, protocolError("the padding is as long as its frame")
	}
	return payload[1 : len(payload)-n], nil
}
