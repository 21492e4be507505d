package redisstore

import (
	"context"
	"sync"
	"time"
)

// bound is the context of one round trip after the other: it ends at the deadline of the one that is under way, and is never
// cancelled. Hardly any lasts until then. So the timer behind it is not stopped when a round trip ends,
// but goes on to the next one's deadline when it goes off: setting timers costs more than one that is in vain now and then,
// because it may wake a processor that sleeps.
type bound struct {
	mu    sync.Mutex
	ends  time.Time // zero: no round trip is under way
	done  chan struct{}
	ended bool // done is closed
	timer *time.Timer
	rings time.Time // when the timer goes off; zero: it is not set
}

var _ context.Context = (*bound)(nil)

func (b *bound) begin(ends time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = ends
	if b.ended {
		b.done, b.ended = nil, false
	}
}

func (b *bound) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = time.Time{}
}

func (b *bound) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done == nil {
		b.done = make(chan struct{})
	}
	if !b.ended && !b.ends.IsZero() && (b.rings.IsZero() || b.ends.Before(b.rings)) {
		b.set()
	}
	return b.done
}

// set has the timer go off at the end. mu is held.
func (b *bound) set() {
	b.rings = b.ends
	if b.timer == nil {
		b.timer = time.AfterFunc(time.Until(b.ends), b.ring)
		return
	}
	b.timer.Reset(time.Until(b.ends))
}

func (b *bound) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rings = time.Time{}
	switch {
	case b.ends.IsZero() || b.ended:
	case time.Now().Before(b.ends):
		b.set()
	default:
		b.ended = true
		close(b.done)
	}
}

func (b *bound) Err() error {
	if at, ok := b.Deadline(); !ok || time.Now().Before(at) {
		return nil
	}
	return context.DeadlineExceeded
}

func (b *bound) Deadline() (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ends, !b.ends.IsZero()
}

func (*bound) Value(any) any { return nil }
