package failover

import (
	"sync/atomic"
	"time"
)

// storeOutage tells the log of one outage.
type storeOutage struct {
	store    *Store
	cause    error
	since    time.Time
	degraded uint64 // charges before it
}

func (s *Store) changed(from, to State) {
	if s.options.OnStateChange != nil {
		s.options.OnStateChange(from, to)
	}
}

func (s *Store) began(cause error) outage {
	return &storeOutage{s, cause, time.Now(), s.Degraded()}
}

func (o *storeOutage) lost() {
	options := &o.store.options
	options.Logger.Error("the rate limit store is unavailable: charges are answered by their failure mode",
		"error", o.cause, "mode", options.Mode.String())
}

func (o *storeOutage) back() {
	o.store.options.Logger.Info("the rate limit store is back",
		"outage", time.Since(o.since).Round(time.Millisecond), "degraded", o.store.Degraded()-o.degraded)
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
