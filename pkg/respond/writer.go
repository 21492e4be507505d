package respond

import "strings"

// writer collects the values of all headers in one buffer, so that they become strings in one allocation.
type writer struct {
	headers []Header
	first   int // where this writer's headers begin
	buf     []byte
	start   int // where the value that is being written begins
	ends    [maxHeaders]int
	count   int
}

// maxHeaders is the most that all styles together write: XRateLimit or Envoy 3, Draft03 or Kong 3, Kong's windows 2 for
// each of MaxPolicies, IETF 2, Custom 3, Retry-After 1.
const maxHeaders = 3 + 3 + 2*MaxPolicies + 2 + 3 + 1

// end makes what was appended to buf since the last end the value of a header.
func (w *writer) end(name string) {
	w.headers = append(w.headers, Header{Name: name})
	w.ends[w.count] = len(w.buf)
	w.count++
	w.start = len(w.buf)
}

func (w *writer) integer(name string, n int64) {
	w.buf = appendInteger(w.buf, n)
	w.end(name)
}

// has reports whether this writer has written a header of this name.
func (w *writer) has(name string) bool {
	for i := w.first; i < len(w.headers); i++ {
		if strings.EqualFold(w.headers[i].Name, name) {
			return true
		}
	}
	return false
}

// finish sets all values and returns the headers.
func (w *writer) finish() []Header {
	all, start := string(w.buf), 0
	for i := range w.count {
		w.headers[w.first+i].Value = all[start:w.ends[i]]
		start = w.ends[i]
	}
	return w.headers
}
