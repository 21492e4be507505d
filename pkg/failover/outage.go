package failover

import (
	"sync/atomic"
	"time"
)

// outage follows one outage of the store, from the breaker's opening to the store's return.
type outage struct {
	options *Options
	// since is written by the call that opens the breaker before it starts the goroutine that reads it.
	since    time.Time
	degraded atomic.Uint64
}

func (o *outage) changed(from, to State) {
	if from == Closed {
		o.since = time.Now()
		o.degraded.Store(0)
	}
	if o.options.OnStateChange != nil {
		o.options.OnStateChange(from, to)
	}
}

func (o *outage) lost(cause error) {
	o.options.Logger.Error("the rate limit store is unavailable: charges are answered by their failure mode",
		"error", cause, "mode", o.options.Mode.String(), "failures", o.options.Failures)
}

func (o *outage) back() {
	o.options.Logger.Info("the rate limit store is back",
		"outage", time.Since(o.since).Round(time.Millisecond), "degraded", o.degraded.Load())
}

// grumbleInterval is the least time between two log lines about single failures.
const grumbleInterval = 10 * time.Second

// quiet lets something be said at most once per grumbleInterval. The zero value is ready to use.
type quiet struct {
	next   atomic.Int64 // Unix nanoseconds
	unsaid atomic.Uint64
}

// may reports whether it may be said now, and how often it was not since it last was.
func (q *quiet) may(now time.Time) (unsaid uint64, ok bool) {
	next := q.next.Load()
	if now.UnixNano() < next || !q.next.CompareAndSwap(next, now.Add(grumbleInterval).UnixNano()) {
		q.unsaid.Add(1)
		return 0, false
	}
	return q.unsaid.Swap(0), true
}
