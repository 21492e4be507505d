package fastgrpc

import "bytes"

// http1Answer is what a client that speaks HTTP/1 is told.
const http1Answer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n" +
	"Content-Length: 64\r\n\r\nThis port speaks gRPC alone, over HTTP/2 with prior knowledge.\r\n"

const maxRequestLine = 8 << 10

// isHTTP1 reports whether b begins with the first line of a request of HTTP/1.
func isHTTP1(b []byte) bool {
	line, _, found := bytes.Cut(b, []byte("\n"))
	return found && startsLikeHTTP1(b) && bytes.Contains(line, []byte(" HTTP/1."))
}

// mayBeHTTP1 reports whether b could become one.
func mayBeHTTP1(b []byte) bool {
	return len(b) < maxRequestLine && startsLikeHTTP1(b) && !bytes.Contains(b, []byte("\n"))
}

func startsLikeHTTP1(b []byte) bool {
	for i, char := range b {
		if char == ' ' {
			return i > 0
		}
		if char < 'A' || char > 'Z' || i > 10 {
			return false
		}
	}
	return true
}
