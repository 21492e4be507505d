package fastgrpc

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// maxStatusMessage bounds what a client is told, in bytes before they are encoded.
const maxStatusMessage = 1024

// appendMessage appends a status message as the field grpc-message has it: percent-encoded UTF-8.
func appendMessage(b []byte, message string) []byte {
	const hex = "0123456789ABCDEF"
	if len(message) > maxStatusMessage {
		message = message[:maxStatusMessage]
	}
	for len(message) > 0 {
		r, n := utf8.DecodeRuneInString(message)
		if r == utf8.RuneError && n <= 1 {
			b = append(b, "%EF%BF%BD"...)
		} else if r >= ' ' && r <= '~' && r != '%' {
			b = append(b, byte(r))
		} else {
			for i := range n {
				b = append(b, '%', hex[message[i]>>4], hex[message[i]&15])
			}
		}
		message = message[n:]
	}
	return b
}

// parseTimeout reads the field grpc-timeout: up to 8 digits and a unit.
func parseTimeout(text string) (time.Duration, bool) {
	if len(text) < 2 || len(text) > 9 {
		return 0, false
	}
	var unit time.Duration
	switch text[len(text)-1] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, false
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if err != nil {
		return 0, false
	}
	const longest = time.Duration(1<<63 - 1)
	if time.Duration(n) > longest/unit { //nolint:gosec // 8 digits
		return longest, true
	}
	return time.Duration(n) * unit, true //nolint:gosec // 8 digits
}
