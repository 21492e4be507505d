package envoy

import (
	"math"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// The fields of RateLimitResponse and the messages in it.
const (
	responseOverallCode = 1
	responseStatuses    = 2
	responseHeaders     = 3
	responseRawBody     = 5
	responseMetadata    = 6

	statusCode           = 1
	statusCurrentLimit   = 2
	statusLimitRemaining = 3
	statusUntilReset     = 4

	limitRequestsPerUnit = 1
	limitUnit            = 2
	limitName            = 3
	limitUnitMultiplier  = 4

	durationSeconds = 1

	headerKey   = 1
	headerValue = 2

	codeOK        = 1
	codeOverLimit = 2
)

func code(over bool) uint64 {
	if over {
		return codeOverLimit
	}
	return codeOK
}

// appendDecision appends what every reply says: the overall code and one status per descriptor.
func appendDecision(dst []byte, decision *engine.Decision) []byte {
	dst = appendUint(dst, responseOverallCode, code(decision.Over))
	for i := range decision.Statuses {
		dst = appendStatus(dst, &decision.Statuses[i])
	}
	return dst
}

// appendStatus appends one descriptor's status. The limit is left out where there is none, and where a dead store was passed
// over: Envoy draws headers from it, and nothing is known of what is left.
//
// duration_until_reset is what Envoy also draws Retry-After from, so on a denial it is the time until this request would be
// allowed; for a fixed window both are the same.
func appendStatus(dst []byte, status *engine.Status) []byte {
	dst, start := begin(dst, responseStatuses)
	dst = appendUint(dst, statusCode, code(status.Over))
	if status.Limit != nil && status.Outcome != ratelimit.OutcomeFailedOpen {
		dst = appendLimit(dst, status)
		dst = appendUint(dst, statusLimitRemaining, clampUint32(status.Remaining))
		until := status.ResetAfter
		if status.Over {
			until = status.RetryAfter
		}
		dst = appendWrapped(dst, statusUntilReset, durationSeconds, uint64(wholeSeconds(until)))
	} else if status.Rule != nil && status.Rule.Unlimited && !status.Over {
		dst = appendUint(dst, statusLimitRemaining, math.MaxUint32) // as envoyproxy/ratelimit says it
	}
	return end(dst, start)
}

func appendLimit(dst []byte, status *engine.Status) []byte {
	dst, start := begin(dst, statusCurrentLimit)
	dst = appendUint(dst, limitRequestsPerUnit, clampUint32(status.Limit.Count))
	unit, multiplier := unitOf(status.Limit)
	dst = appendUint(dst, limitUnit, uint64(unit))
	if name := nameOf(status, status.Limit); name != "" {
		var inner int
		dst, inner = begin(dst, limitName)
		dst = respond.AppendName(dst, name)
		dst = end(dst, inner)
	}
	if multiplier > 1 {
		dst = appendWrapped(dst, limitUnitMultiplier, wrapperValue, uint64(multiplier))
	}
	return end(dst, start)
}

// nameOf is how people call a limit: by its own name, or its rule's.
func nameOf(status *engine.Status, limit *ratelimit.Limit) string {
	switch {
	case limit.Name != "":
		return limit.Name
	case status.Rule != nil:
		return status.Rule.Label()
	default:
		return ""
	}
}

// appendHeader appends a HeaderValue. HTTP/2 wants lower-case names; and Envoy writes values out as they are, so a byte that
// is not visible ASCII or space is percent-encoded, whoever let it come this far.
func appendHeader(dst []byte, name, value string) []byte {
	dst, start := begin(dst, responseHeaders)
	dst, inner := begin(dst, headerKey)
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	dst = end(dst, inner)
	dst, inner = begin(dst, headerValue)
	for i := range len(value) {
		if c := value[i]; c >= ' ' && c <= '~' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		}
	}
	dst = end(dst, inner)
	return end(dst, start)
}

func clampUint32(n int64) uint64 { return uint64(min(max(n, 0), math.MaxUint32)) }
