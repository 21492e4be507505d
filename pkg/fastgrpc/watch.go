package fastgrpc

import (
	"sync"
	"time"
)

const (
	watchEvery = 4 * time.Millisecond
	watchIdle  = 100 // turns without work after which it sleeps
)

// watch gives the reading of a connection to another goroutine when its own waits in a handler. It looks at all handlers
// now and then: a timer or a goroutine per batch would cost more than most batches.
type watch struct {
	mu    sync.Mutex
	first *batch
	turn  int64
	added bool
	awake bool
	wake  chan struct{}
}

// add says that a handler begins that may wait.
func (w *watch) add(b *batch) {
	w.mu.Lock()
	b.began, b.previous, b.next = w.turn, nil, w.first
	if w.first != nil {
		w.first.previous = b
	}
	w.first, w.added = b, true
	wake := !w.awake
	w.awake = true
	w.mu.Unlock()
	if wake {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// remove says that it has ended.
func (w *watch) remove(b *batch) {
	w.mu.Lock()
	if b.previous != nil {
		b.previous.next = b.next
	} else {
		w.first = b.next
	}
	if b.next != nil {
		b.next.previous = b.previous
	}
	b.previous, b.next = nil, nil
	w.mu.Unlock()
}

// run looks until stop is closed.
func (w *watch) run(stop <-chan struct{}) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	idle := 0
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		if w.look() {
			idle = 0
			continue
		}
		if idle++; idle < watchIdle {
			continue
		}
		idle = 0
		w.mu.Lock()
		sleep := w.first == nil && !w.added
		w.awake = !sleep
		w.mu.Unlock()
		if !sleep {
			continue
		}
		ticker.Stop()
		select {
		case <-stop:
			return
		case <-w.wake:
		}
		ticker.Reset(watchEvery)
	}
}

// look hands over what has waited for a whole turn. It reports whether there was work since the last look.
func (w *watch) look() (busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn++
	for b := w.first; b != nil; b = b.next {
		if w.turn-b.began < 2 {
			continue
		}
		// A connection whose lock is held is doing something, so there is nothing to mend.
		if c := b.conn; c.mu.TryLock() {
			c.handOver(b)
			c.mu.Unlock()
		}
	}
	busy, w.added = w.added || w.first != nil, false
	return busy
}
