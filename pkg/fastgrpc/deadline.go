package fastgrpc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadline is a context that ends at a time. It makes its channel and its timer only when somebody asks for them, which a
// handler that does not wait never does.
type deadline struct {
	batch *batch
	ended atomic.Bool // by cancel
	at    time.Time
	mu    sync.Mutex
	done  chan struct{}
	timer *time.Timer
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

type deadlineKey struct{}

func (d *deadline) Value(key any) any {
	if key == (deadlineKey{}) {
		return d
	}
	return nil
}

func (d *deadline) Err() error {
	if d.ended.Load() {
		return context.Canceled
	}
	if time.Now().Before(d.at) {
		return nil
	}
	return context.DeadlineExceeded
}

func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done == nil {
		done := make(chan struct{})
		d.done = done
		if d.ended.Load() {
			close(done)
		} else {
			d.timer = time.AfterFunc(time.Until(d.at), func() { close(done) })
		}
	}
	return d.done
}

// cancel ends the context, because nobody waits for an answer any more. Contexts derived from it end at its time all the same.
func (d *deadline) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended.Swap(true) {
		return
	}
	if d.timer != nil && d.timer.Stop() {
		close(d.done)
	}
}

// AfterFunc spares package context a goroutine per derived context.
func (d *deadline) AfterFunc(f func()) (stop func() bool) {
	return time.AfterFunc(time.Until(d.at), f).Stop
}

// release stops the timer. It reports whether d may serve another batch: nobody holds its channel.
func (d *deadline) release() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	return d.done == nil && !d.ended.Load()
}
