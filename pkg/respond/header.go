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
	w := writer{headers: dst, first: len(dst), buf: space[:0]}
	if tightest := d.Tightest(); tightest >= 0 {
		f.limits(&w, d, tightest, now)
	}
	if seconds := d.RetryAfter(); seconds > 0 && !f.options.NoRetryAfter {
		w.integer("Retry-After", seconds)
	}
	return w.finish()
}

func (f *Formatter) limits(w *writer, d *Decision, tightest int, now time.Time) {
	styles, l := f.options.Styles, &d.Limits[tightest]
	var listed policies
	if styles&(Envoy|Draft03|IETF) != 0 {
		listed = listPolicies(d, tightest)
	}
	switch {
	case styles&XRateLimit != 0:
		w.integer("X-RateLimit-Limit", l.Count)
		w.integer("X-RateLimit-Remaining", l.Remaining)
		if f.options.Reset == ResetDelta {
			w.integer("X-RateLimit-Reset", ceilSeconds(l.ResetAfter))
		} else {
			w.integer("X-RateLimit-Reset", unixSeconds(now.Add(max(0, l.ResetAfter))))
		}
	case styles&Envoy != 0:
		w.buf = appendInteger(w.buf, l.Count)
		for i := range listed.all() {
			w.buf = append(w.buf, ", "...)
			w.buf = listed.appendDraft03(w.buf, d, i)
			w.buf = append(w.buf, `;name="`...)
			w.buf = listed.appendName(w.buf, d, i)
			w.buf = append(w.buf, '"')
		}
		w.end("X-RateLimit-Limit")
		w.integer("X-RateLimit-Remaining", l.Remaining)
		w.integer("X-RateLimit-Reset", ceilSeconds(l.ResetAfter))
	}
	switch {
	case styles&Draft03 != 0:
		w.buf = appendInteger(w.buf, l.Count)
		for i := range listed.all() {
			w.buf = append(w.buf, ", "...)
			w.buf = listed.appendDraft03(w.buf, d, i)
		}
		w.end("RateLimit-Limit")
	case styles&Kong != 0:
		w.integer("RateLimit-Limit", l.Count)
	}
	if styles&(Draft03|Kong) != 0 {
		w.integer("RateLimit-Remaining", l.Remaining)
		w.integer("RateLimit-Reset", l.wait())
	}
	if styles&Kong != 0 {
		kongWindows(w, d)
	}
	if styles&IETF != 0 {
		listed.writeIETF(w, d)
	}
	if styles&Custom != 0 {
		f.custom(w, l)
	}
}

func (f *Formatter) custom(w *writer, l *Limit) {
	names := &f.options.Names
	if names.Limit != "" && !w.has(names.Limit) {
		w.integer(names.Limit, l.Count)
	}
	if names.Remaining != "" && !w.has(names.Remaining) {
		w.integer(names.Remaining, l.Remaining)
	}
	if names.Reset != "" && !w.has(names.Reset) {
		w.integer(names.Reset, ceilSeconds(l.ResetAfter))
	}
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
