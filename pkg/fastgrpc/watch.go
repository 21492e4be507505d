package fastgrpc

import (
	"sync"
	"time"

	"github.com/weirhq/weir/pkg/alarm"
)

// handOverAfter is how long a handler may wait until another goroutine reads its connection: many times as long as a store
// takes that is well.
const handOverAfter = 10 * time.Millisecond

// watch gives the reading of a connection to another goroutine when its own waits in a handler. There is one timer for all
// handlers, set only while some wait: waking a process for each turn of a clock would cost more than most batches, and so would a
// timer or a goroutine for each.
type watch struct {
	mu          sync.Mutex
	first, last *batch // those to hand over, in the order in which they began to wait
	alarm       alarm.Alarm
}

// add says that a handler begins that may wait.
func (w *watch) add(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.alarm.By(now.Add(handOverAfter), w)
	w.push(b, now)
}

// remove says that it has ended.
func (w *watch) remove(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.watched {
		w.unlink(b)
	}
}

// Ring hands over what has waited long enough.
func (w *watch) Ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarm.Rang()
	now := time.Now()
	for b := w.first; b != nil && now.Sub(b.began) >= handOverAfter; b = w.first {
		w.unlink(b)
		c := b.conn
		if !c.mu.TryLock() {
			w.push(b, now) // it is doing something, so there is nothing to mend now
			continue
		}
		c.handOver(b)
		c.mu.Unlock()
	}
	if w.first != nil {
		w.alarm.By(w.first.began.Add(handOverAfter), w)
	}
}

// push puts a batch at the end. mu is held, as it is below.
func (w *watch) push(b *batch, now time.Time) {
	b.watched, b.began = true, now
	b.previous, b.next = w.last, nil
	if w.last == nil {
		w.first = b
	} else {
		w.last.next = b
	}
	w.last = b
}

func (w *watch) unlink(b *batch) {
	if b.previous == nil {
		w.first = b.next
	} else {
		b.previous.next = b.next
	}
	if b.next == nil {
		w.last = b.previous
	} else {
		b.next.previous = b.previous
	}
	b.previous, b.next, b.watched = nil, nil, false
}
