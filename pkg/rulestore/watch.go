package rulestore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// watchTimeout bounds one look at the revision, so that one that hangs does not hide that the database is back.
	watchTimeout = 2 * time.Second
	// maxRetry bounds the pause after a failure, unless the poll interval is longer.
	maxRetry = 2 * time.Second
	// Changes that come while the last one is taken over, or shortly after, are taken over together.
	minGather, maxGather = 20 * time.Millisecond, 500 * time.Millisecond
)

// Watch implements Store.
func (d *database) Watch(ctx context.Context, changed func(context.Context) error) error {
	if !d.watchers.enter() {
		return errClosed
	}
	defer d.watchers.leave()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(d.alive, func() { stop(errClosed) })()

	wake := d.watchers.subscribe()
	defer d.watchers.unsubscribe(wake)
	var listening sync.WaitGroup
	if d.listen != nil {
		listening.Go(func() { d.listen(ctx, func() { signal(wake) }) })
	}
	f := follower{interval: d.PollInterval, wake: wake, changed: changed, revision: func(ctx context.Context) (int64, error) {
		bounded, cancel := context.WithTimeout(ctx, watchTimeout)
		defer cancel()
		revision, err := d.Revision(bounded)
		if ctx.Err() == nil {
			d.Looked(err)
		}
		return revision, err
	}}
	f.run(ctx)
	listening.Wait()
	return context.Cause(ctx)
}

// follower calls changed whenever the revision is not the one of the last successful call.
type follower struct {
	interval time.Duration
	wake     <-chan struct{}
	revision func(context.Context) (int64, error)
	changed  func(context.Context) error
}

func (f *follower) run(ctx context.Context) {
	seen := int64(-1)
	pause := f.interval
	for ctx.Err() == nil {
		began := time.Now()
		revision, err := f.revision(ctx)
		if err == nil && revision != seen {
			if err = f.changed(ctx); err == nil {
				seen = revision
			}
		}
		if err == nil {
			pause = f.interval
		} else {
			pause = min(2*pause, max(maxRetry, f.interval))
		}
		gather := min(max(time.Since(began), minGather), maxGather)
		timer := time.NewTimer(jitter(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-f.wake:
			timer.Reset(gather)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			select { // what came meanwhile is seen by the next look
			case <-f.wake:
			default:
			}
		}
		timer.Stop()
	}
}

// jitter spreads a pause by a fifth each way, so that replicas do not ask at the same moment.
func jitter(pause time.Duration) time.Duration {
	return pause - pause/5 + rand.N(2*pause/5+1)
}

// signal wakes a follower; one that is awake already will look again.
func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// watchers are the Watch calls of one store.
type watchers struct {
	mu      sync.Mutex
	closed  bool
	wakes   map[chan struct{}]struct{}
	running sync.WaitGroup
}

// enter counts a Watch in, unless the store is closed.
func (w *watchers) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.running.Add(1)
	}
	return !w.closed
}

func (w *watchers) leave() { w.running.Done() }

func (w *watchers) subscribe() chan struct{} {
	wake := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wakes == nil {
		w.wakes = make(map[chan struct{}]struct{})
	}
	w.wakes[wake] = struct{}{}
	return wake
}

func (w *watchers) unsubscribe(wake chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wakes, wake)
}

// wake tells every Watch of this store of a change that it has made itself.
func (w *watchers) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wake := range w.wakes {
		signal(wake)
	}
}

// wait refuses further watches and returns when the last one has ended.
func (w *watchers) wait() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}
