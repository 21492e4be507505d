package respond

import (
	"strconv"
	"strings"
)

// MediaType is a form that a denial's body can have.
type MediaType uint8

// The media types.
const (
	ProblemJSON MediaType = iota // RFC 9457
	JSON                         // {"message": ..., "request_id": ...}, as Kong's own plugins answer
	HTML
	Plain
)

var contentTypes = [...]string{
	ProblemJSON: "application/problem+json",
	JSON:        "application/json; charset=utf-8",
	HTML:        "text/html; charset=utf-8",
	Plain:       "text/plain; charset=utf-8",
}

var mediaNames = [...]struct{ kind, subtype string }{
	ProblemJSON: {"application", "problem+json"},
	JSON:        {"application", "json"},
	HTML:        {"text", "html"},
	Plain:       {"text", "plain"},
}

// ContentType is the value for the Content-Type header.
func (m MediaType) ContentType() string {
	if int(m) >= len(contentTypes) {
		return contentTypes[Plain]
	}
	return contentTypes[m]
}

const (
	maxAccept       = 1024 // bytes of an Accept header that are read
	maxAcceptRanges = 32
)

// Negotiate returns that of the offers which an Accept header prefers (RFC 9110, section 12.5.1): the highest quality, of
// equals the one that is named most exactly, of equals the first offered. Without offers all media types are offered in
// the order of their constants. If the header is empty, cannot be read, or accepts none of the offers, the first one is
// returned: for an error a body in an unwanted form tells more than none. Several Accept headers are joined by commas.
func Negotiate(accept string, offers ...MediaType) MediaType {
	if len(offers) == 0 {
		offers = []MediaType{ProblemJSON, JSON, HTML, Plain}
	}
	if len(accept) > maxAccept {
		// What follows the last whole range is dropped.
		accept = accept[:max(0, strings.LastIndexByte(accept[:maxAccept], ','))]
	}
	chosen, best := offers[0], preference{}
	for _, offer := range offers {
		if int(offer) >= len(mediaNames) {
			continue
		}
		if p := preferenceFor(accept, offer); p.quality > 0 && p.above(best) {
			chosen, best = offer, p
		}
	}
	return chosen
}

// preference is how much an Accept header wants a media type.
type preference struct {
	quality   int // in thousandths
	exactness int // 1: */*, 2: type/*, 3: type/subtype
}

func (p preference) above(other preference) bool {
	if p.quality != other.quality {
		return p.quality > other.quality
	}
	return p.exactness > other.exactness
}

// preferenceFor returns the quality of the range that names m most exactly; the zero value if none does.
func preferenceFor(accept string, m MediaType) preference {
	var found preference
	ranges := 0
	for part := range strings.SplitSeq(accept, ",") {
		if ranges++; ranges > maxAcceptRanges {
			break
		}
		name, parameters, _ := strings.Cut(part, ";")
		exactness := matches(strings.TrimSpace(name), m)
		if exactness <= found.exactness {
			continue
		}
		if quality, ok := parseQuality(parameters); ok {
			found = preference{quality, exactness}
		}
	}
	return found
}

// matches returns how exactly a media range names m; 0 if it does not.
func matches(mediaRange string, m MediaType) int {
	kind, subtype, ok := strings.Cut(mediaRange, "/")
	switch name := &mediaNames[m]; {
	case !ok:
		return 0
	case kind == "*" && subtype == "*":
		return 1
	case !strings.EqualFold(kind, name.kind):
		return 0
	case subtype == "*":
		return 2
	case strings.EqualFold(subtype, name.subtype):
		return 3
	default:
		return 0
	}
}

// parseQuality returns the parameter q in thousandths, 1000 if there is none. It is not ok if q cannot be read.
func parseQuality(parameters string) (thousandths int, ok bool) {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		value = strings.TrimSpace(value)
		if len(value) == 0 || len(value) > len("0.000") || strings.Trim(value, "0123456789.") != "" {
			return 0, false
		}
		q, err := strconv.ParseFloat(value, 64)
		if err != nil || q > 1 {
			return 0, false
		}
		return int(q*1000 + 0.5), true
	}
	return 1000, true
}
