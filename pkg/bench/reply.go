package bench

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Codes of RateLimitResponse.
const (
	codeOK        = 1
	codeOverLimit = 2
)

const (
	// maxReply bounds what is kept of a reply that comes in pieces.
	maxReply = 1 << 20

	replyOverallCode   = 1
	replyStatuses      = 2
	statusCurrentLimit = 2 // of a status

	messagePrefix = 5 // of gRPC: a flag and a length
)

// reply is what is checked of a RateLimitResponse.
type reply struct {
	code     uint64
	statuses int
	limits   int // statuses that tell their limit
}

var (
	errNoMessage    = errors.New("the reply holds no message")
	errShortMessage = errors.New("the reply's message is cut short")
	errMoreMessages = errors.New("the reply holds more than one message")
	errCompressed   = errors.New("the reply is compressed, which nobody asked for")
)

// parseReply reads the body of a reply: one gRPC message.
func parseReply(body []byte) (reply, error) {
	if len(body) < messagePrefix {
		return reply{}, errNoMessage
	}
	if body[0] != 0 {
		return reply{}, errCompressed
	}
	length := int(binary.BigEndian.Uint32(body[1:]))
	switch message := body[messagePrefix:]; {
	case len(message) < length:
		return reply{}, errShortMessage
	case len(message) > length:
		return reply{}, errMoreMessages
	default:
		return parseResponse(message)
	}
}

func parseResponse(message []byte) (reply, error) {
	var found reply
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return reply{}, fmt.Errorf("the reply is no RateLimitResponse: %w", protowire.ParseError(n))
		}
		message = message[n:]
		switch {
		case field == replyOverallCode && kind == protowire.VarintType:
			found.code, n = protowire.ConsumeVarint(message)
		case field == replyStatuses && kind == protowire.BytesType:
			var status []byte
			status, n = protowire.ConsumeBytes(message)
			found.statuses++
			if tellsLimit(status) {
				found.limits++
			}
		default:
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return reply{}, fmt.Errorf("the reply is no RateLimitResponse: %w", protowire.ParseError(n))
		}
		message = message[n:]
	}
	return found, nil
}

// tellsLimit reports whether a status has a limit.
func tellsLimit(status []byte) bool {
	for len(status) > 0 {
		field, kind, n := protowire.ConsumeTag(status)
		if n < 0 || field == statusCurrentLimit {
			return n >= 0 && kind == protowire.BytesType
		}
		size := protowire.ConsumeFieldValue(field, kind, status[n:])
		if size < 0 {
			return false
		}
		status = status[n+size:]
	}
	return false
}

// codeName is a code as the proto calls it.
func codeName(code uint64) string {
	switch code {
	case 0:
		return "UNKNOWN"
	case codeOK:
		return "OK"
	case codeOverLimit:
		return "OVER_LIMIT"
	default:
		return fmt.Sprintf("code %d", code)
	}
}
