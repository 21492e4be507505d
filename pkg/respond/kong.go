package respond

import "strconv"

var kongNames = []struct {
	seconds          int64
	limit, remaining string
}{
	{1, "X-RateLimit-Limit-Second", "X-RateLimit-Remaining-Second"},
	{60, "X-RateLimit-Limit-Minute", "X-RateLimit-Remaining-Minute"},
	{3600, "X-RateLimit-Limit-Hour", "X-RateLimit-Remaining-Hour"},
	{86400, "X-RateLimit-Limit-Day", "X-RateLimit-Remaining-Day"},
	{30 * 86400, "X-RateLimit-Limit-Month", "X-RateLimit-Remaining-Month"},
	{365 * 86400, "X-RateLimit-Limit-Year", "X-RateLimit-Remaining-Year"},
}

// kongWindows writes a pair of headers for each length of window, in the order of the limits. Of several limits with the
// same window the tightest is shown, since a header of one name can tell of one only.
func kongWindows(buf []byte, w *fields, d *Decision) []byte {
	written := 0
	limits := d.Limits[:min(len(d.Limits), maxCompared)]
	for i := range limits {
		seconds := limits[i].windowSeconds()
		l, first := &limits[i], true
		for j := range limits {
			if other := &limits[j]; j != i && other.windowSeconds() == seconds {
				first = first && j > i
				if tighter(other, l) {
					l = other
				}
			}
		}
		if !first {
			continue
		}
		if written++; written > MaxPolicies {
			break
		}
		limit, remaining := kongHeaders(seconds)
		buf = w.integer(buf, limit, l.Count)
		buf = w.integer(buf, remaining, l.Remaining)
	}
	return buf
}

func kongHeaders(seconds int64) (limit, remaining string) {
	for i := range kongNames {
		if n := &kongNames[i]; n.seconds == seconds {
			return n.limit, n.remaining
		}
	}
	text := strconv.FormatInt(seconds, 10)
	return "X-RateLimit-Limit-" + text, "X-RateLimit-Remaining-" + text
}
