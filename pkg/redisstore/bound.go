package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/weirhq/weir/pkg/alarm"
)

// bound is the context of one round trip after the other: it ends at the deadline of the one that is under way, and is never
// cancelled. Hardly any lasts until then.
type bound struct {
	mu    sync.Mutex
	ends  time.Time // zero: no round trip is under way
	done  chan struct{}
	ended bool // done is closed
	alarm alarm.Alarm
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
	if !b.ended && !b.ends.IsZero() {
		b.alarm.By(b.ends, b)
	}
	return b.done
}

// Ring ends the round trip that is under way if its deadline has come.
func (b *bound) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm.Rang()
	switch {
	case b.ends.IsZero() || b.ended:
	case time.Now().Before(b.ends):
		b.alarm.By(b.ends, b)
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
