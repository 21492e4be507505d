package respond

import (
	"encoding/json"
	"html"
	"strconv"
)

// DefaultMessage is what Kong's own plugins say.
const DefaultMessage = "API rate limit exceeded"

const (
	maxMessage   = 1024
	maxRequestID = 128
	maxInstance  = 256
)

// Body describes a denial's body. The zero value of each field is usable.
type Body struct {
	// Status stands in the problem details; 0: the decision's. It should be the response's own.
	Status int
	// Message is the short text for people of all forms but ProblemJSON; empty: DefaultMessage. Cut at 1024 bytes.
	Message string
	// RequestID may come from the client; empty: left out. It is escaped and cut at 128 bytes.
	RequestID string
	// Instance is a URI reference that names this occurrence (RFC 9457, section 3.1.5); empty: left out. It is escaped, and
	// left out above 256 bytes.
	Instance string
}

// Append appends the body for d in the form m. What it appends is valid UTF-8, and in HTML nothing of b is markup.
func (b *Body) Append(dst []byte, m MediaType, d *Decision) []byte {
	switch m {
	case ProblemJSON:
		return b.appendProblem(dst, d)
	case JSON:
		return appendJSON(dst, message{b.message(), b.requestID()})
	case HTML:
		text := html.EscapeString(b.message())
		dst = append(dst, "<!doctype html>\n<html lang=\"en\">\n<title>"...)
		dst = append(dst, text...)
		dst = append(dst, "</title>\n<h1>"...)
		dst = append(dst, text...)
		dst = append(dst, "</h1>\n"...)
		if seconds := d.RetryAfter(); seconds > 0 {
			dst = append(dst, "<p>Try again in "...)
			dst = appendSeconds(dst, seconds)
			dst = append(dst, ".</p>\n"...)
		}
		if id := b.requestID(); id != "" {
			dst = append(dst, "<p>Request "...)
			dst = append(dst, html.EscapeString(id)...)
			dst = append(dst, "</p>\n"...)
		}
		return append(dst, "</html>\n"...)
	default:
		dst = append(dst, b.message()...)
		if id := b.requestID(); id != "" {
			dst = append(dst, "\nrequest_id: "...)
			dst = append(dst, id...)
		}
		return append(dst, '\n')
	}
}

type message struct {
	Message   string `json:"message"`
	RequestID string `json:"request_id,omitempty"`
}

func (b *Body) message() string {
	if b.Message == "" {
		return DefaultMessage
	}
	return validUTF8(b.Message, maxMessage)
}

func (b *Body) requestID() string {
	if b.RequestID == "" {
		return ""
	}
	return EscapeName(b.RequestID[:min(len(b.RequestID), maxRequestID)])
}

// appendJSON appends a value made of strings and numbers, whose encoding cannot fail.
func appendJSON(dst []byte, value any) []byte {
	text, _ := json.Marshal(value)
	return append(dst, text...)
}

func appendSeconds(dst []byte, seconds int64) []byte {
	dst = strconv.AppendInt(dst, seconds, 10)
	if seconds == 1 {
		return append(dst, " second"...)
	}
	return append(dst, " seconds"...)
}
