package remote

import (
	"errors"
	"sync"
	"time"
)

// ErrPaused is the error of a request that was not sent because the server has answered none of the last ones in time.
var ErrPaused = errors.New("weir does not answer in time: not asked")

const (
	breakAfter = 5                      // timeouts in a row
	breakFor   = 250 * time.Millisecond // until one request tries again
)

// breaker keeps requests from waiting one by one for a server that takes connections and answers nothing. A server that is
// gone needs none: its requests fail at once. The zero value is closed.
type breaker struct {
	mu       sync.Mutex
	timeouts int
	until    time.Time // while open: when the next request may try
}

// allow reports whether to ask the server.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timeouts < breakAfter {
		return true
	}
	if now.Before(b.until) {
		return false
	}
	b.until = now.Add(breakFor) // this one tries, the others wait for what becomes of it
	return true
}

// settle notes how a request ended: in time, whatever the answer, or not.
func (b *breaker) settle(now time.Time, timedOut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !timedOut {
		b.timeouts = 0
		return
	}
	if b.timeouts++; b.timeouts >= breakAfter {
		b.until = now.Add(breakFor)
	}
}
