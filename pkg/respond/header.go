package respond

import (
	"strconv"
	"time"
)

const (
	// MaxPolicies bounds how many limits a header lists. Of more, the first ones and the tightest are listed.
	MaxPolicies = 16
	// maxCompared bounds how many limits are compared with each other to find those that a client could not tell apart.
	maxCompared = 64

	// maxInteger is the largest integer that a structured field can hold (RFC 9651, section 3.3.1).
	maxInteger = 999_999_999_999_999
)

// Header is one field of a response. Name is in the usual capitals; HTTP/2 and Envoy want them small and fold them.
type Header struct{ Name, Value string }

// Append appends the header fields that tell of d, in an order that depends on the styles and on d's limits alone. now is
// the time for headers that hold a time of day. Without limits only Retry-After is written, and only on a denial.
//
// It allocates once for all values, beside what dst needs to grow.
func (f *Formatter) Append(dst []Header, d *Decision, now time.Time) []Header {
	var space [512]byte
	var w fields
	buf := space[:0]
	if tightest := d.Tightest(); tightest >= 0 {
		buf = f.limits(buf, &w, d, tightest, now)
	}
	if seconds := d.RetryAfter(); seconds > 0 && !f.options.NoRetryAfter {
		buf = w.integer(buf, "Retry-After", seconds)
	}
	return w.appendTo(dst, buf)
}

func (f *Formatter) limits(buf []byte, w *fields, d *Decision, tightest int, now time.Time) []byte {
	styles, l := f.options.Styles, &d.Limits[tightest]
	var listed policies
	if styles&(Envoy|Draft03|IETF) != 0 {
		listed = listPolicies(d, tightest)
	}
	switch {
	case styles&XRateLimit != 0:
		reset := ceilSeconds(l.ResetAfter)
		if f.options.Reset == ResetUnix {
			reset = unixSeconds(now.Add(max(0, l.ResetAfter)))
		}
		buf = w.integer(buf, "X-RateLimit-Limit", l.Count)
		buf = w.integer(buf, "X-RateLimit-Remaining", l.Remaining)
		buf = w.integer(buf, "X-RateLimit-Reset", reset)
	case styles&Envoy != 0:
		buf = w.end(listed.appendEnvoy(appendInteger(buf, l.Count), d), "X-RateLimit-Limit")
		buf = w.integer(buf, "X-RateLimit-Remaining", l.Remaining)
		buf = w.integer(buf, "X-RateLimit-Reset", ceilSeconds(l.ResetAfter))
	}
	switch {
	case styles&Draft03 != 0:
		buf = w.end(listed.appendDraft03(appendInteger(buf, l.Count), d), "RateLimit-Limit")
	case styles&Kong != 0:
		buf = w.integer(buf, "RateLimit-Limit", l.Count)
	}
	if styles&(Draft03|Kong) != 0 {
		buf = w.integer(buf, "RateLimit-Remaining", l.Remaining)
		buf = w.integer(buf, "RateLimit-Reset", l.wait())
	}
	if styles&Kong != 0 {
		buf = kongWindows(buf, w, d)
	}
	if styles&IETF != 0 {
		buf = w.end(listed.appendRateLimit(buf, d), "RateLimit")
		buf = w.end(listed.appendRateLimitPolicy(buf, d), "RateLimit-Policy")
	}
	if styles&Custom != 0 {
		buf = f.custom(buf, w, l)
	}
	return buf
}

func (f *Formatter) custom(buf []byte, w *fields, l *Limit) []byte {
	names := &f.options.Names
	if names.Limit != "" && !w.has(names.Limit) {
		buf = w.integer(buf, names.Limit, l.Count)
	}
	if names.Remaining != "" && !w.has(names.Remaining) {
		buf = w.integer(buf, names.Remaining, l.Remaining)
	}
	if names.Reset != "" && !w.has(names.Reset) {
		buf = w.integer(buf, names.Reset, ceilSeconds(l.ResetAfter))
	}
	return buf
}

// resetTolerance is the time that may pass between the store's reading of its clock and now: without it the end of a
// fixed window, which is a whole second, would be shown a second late most of the time.
const resetTolerance = 100 * time.Millisecond

// unixSeconds rounds up to whole seconds.
func unixSeconds(t time.Time) int64 {
	return t.Add(time.Second - time.Nanosecond - resetTolerance).Unix()
}

func appendInteger(dst []byte, n int64) []byte {
	return strconv.AppendInt(dst, min(max(n, 0), maxInteger), 10)
}
