package respond

import "strings"

// fields are the headers whose values stand one after the other in one buffer, so that all of them become strings in one
// allocation. The buffer is passed beside it, which lets both stay on the stack.
type fields struct {
	names [maxFields]string
	ends  [maxFields]int // where each value ends in the buffer, and the next begins
	count int
}

// maxFields is the most that all styles together write: XRateLimit or Envoy 3, Draft03 or Kong 3, Kong's windows 2 for
// each of MaxPolicies, IETF 2, Custom 3, Retry-After 1.
const maxFields = 3 + 3 + 2*MaxPolicies + 2 + 3 + 1

// end makes what was appended to buf since the last end the value of a header.
func (f *fields) end(buf []byte, name string) []byte {
	f.names[f.count], f.ends[f.count] = name, len(buf)
	f.count++
	return buf
}

func (f *fields) integer(buf []byte, name string, n int64) []byte {
	return f.end(appendInteger(buf, n), name)
}

// has reports whether a header of this name is among the fields.
func (f *fields) has(name string) bool {
	for _, written := range f.names[:f.count] {
		if strings.EqualFold(written, name) {
			return true
		}
	}
	return false
}

// appendTo appends the headers with their values from buf.
func (f *fields) appendTo(dst []Header, buf []byte) []Header {
	all, start := string(buf), 0
	for i, name := range f.names[:f.count] {
		dst = append(dst, Header{name, all[start:f.ends[i]]})
		start = f.ends[i]
	}
	return dst
}
