package failover

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// breaker decides whether calls reach the store. It learns from the calls' results while it is closed, and from probes
// while it is not.
type breaker struct {
	threshold int
	quiet     time.Duration // no success for so long, or failures in a row mean nothing
	interval  time.Duration
	probe     func(context.Context) error // returns within its own deadline
	watcher   watcher

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	probes sync.WaitGroup

	// state and epoch are written under mu and read without it. epoch counts the openings: what a call that began before
	// one reports after it says nothing about now.
	state atomic.Uint32
	epoch atomic.Uint64
	// failures in a row, and when a call last succeeded, as the time since born. Both are hints that calls update side by
	// side; a lost update delays the opening by one call.
	failures    atomic.Int64
	lastSuccess atomic.Int64
	born        time.Time

	mu     sync.Mutex
	closed bool
}

// watcher is told what the breaker does. Its methods are called with the lock held: they must be quick.
type watcher interface {
	changed(from, to State)
	// began is called when the breaker opens. What it returns is told of the outage by the probing goroutine, so that no
	// caller waits for a log line.
	began(cause error) outage
}

// outage is one, from the breaker's opening to the store's return.
type outage interface {
	lost()
	back()
}

// never is a time of success longer ago than any quiet time.
const never = -1 << 62

func newBreaker(threshold int, quiet, interval time.Duration, probe func(context.Context) error, w watcher) *breaker {
	ctx, cancel := context.WithCancel(context.Background())
	b := &breaker{
		threshold: threshold, quiet: quiet, interval: interval, probe: probe, watcher: w,
		ctx: ctx, cancel: cancel, born: time.Now(),
	}
	b.lastSuccess.Store(never)
	return b
}

func (b *breaker) current() State { return State(b.state.Load()) }

// allow reports whether a call may reach the store, and the epoch to report its result with.
func (b *breaker) allow() (epoch uint64, ok bool) {
	epoch = b.epoch.Load()
	return epoch, b.current() == Closed
}

// succeeded reports that the store answered a call at now.
func (b *breaker) succeeded(epoch uint64, now time.Time) {
	if epoch != b.epoch.Load() {
		return
	}
	if b.failures.Load() != 0 { // written only when it changes, so that callers do not fight for the cache line
		b.failures.Store(0)
	}
	since := int64(now.Sub(b.born))
	if last := b.lastSuccess.Load(); since-last > int64(b.quiet/8) {
		b.lastSuccess.Store(since)
	}
}

// failed reports that the store could decide nothing of a call.
func (b *breaker) failed(epoch uint64, now time.Time, cause error) {
	if epoch != b.epoch.Load() || b.failures.Add(1) < int64(b.threshold) {
		return
	}
	if time.Duration(int64(now.Sub(b.born))-b.lastSuccess.Load()) < b.quiet {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.current() != Closed || epoch != b.epoch.Load() {
		return
	}
	b.epoch.Add(1)
	outage := b.watcher.began(cause)
	b.set(Open)
	b.probes.Go(func() { b.recover(outage) })
}

// recover probes until the store is back or the breaker is closed for good. Only one runs at a time: it is started when
// the state leaves Closed, and ends when it has set it back.
func (b *breaker) recover(outage outage) {
	outage.lost()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(b.interval + rand.N(b.interval/2+1)) //nolint:gosec // spreads replicas, guards no secret
		select {
		case <-b.ctx.Done():
			return
		case <-timer.C:
		}
		b.locked(HalfOpen)
		if err := b.probe(b.ctx); err != nil || b.ctx.Err() != nil {
			b.locked(Open)
			continue
		}
		// On probation: the probe succeeded, no caller did yet.
		b.failures.Store(int64(b.threshold - 1))
		b.lastSuccess.Store(never)
		b.locked(Closed)
		outage.back()
		return
	}
}

func (b *breaker) locked(to State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(to)
}

// set changes the state. mu is held.
func (b *breaker) set(to State) {
	b.watcher.changed(State(b.state.Swap(uint32(to))), to)
}

// close ends a probe that is under way and prevents further ones. The state stays as it is.
func (b *breaker) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.probes.Wait()
}
