package lease

import (
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// share is the part of what the store has left that one lease takes at most: 1/16.
	share = 16
	// drift is the part of a lease's time that is left out, because clocks run at different speeds: 1/1024.
	drift = 1024
	// patience is how long a counter waits for a lease that is under way until it asks for another one.
	patience = time.Second
)

// counter is a busy counter. Its fields are guarded by its shard's mu.
type counter struct {
	limit *ratelimit.Limit
	held  grant
	// epoch counts what ended leases before their time: a lease that was asked for in an earlier one is lost.
	epoch uint64
	// asked is since when a lease is under way; zero: none is.
	asked time.Time
	// landing is closed when the latest lease that was under way is here, or will not come. nil: there was none, or it is here.
	landing chan struct{}

	period       int64 // the TTL of the latest hit, numbered since the Unix epoch
	hits, before int64 // asked for in this period, and in the one before
	size         int64 // of the latest lease; 0: it begins anew
	known        bool  // remaining is known
	remaining    int64 // what the store had left, as it said last
}

// grant is what is left of a lease.
type grant struct {
	left      int64
	began     time.Time     // before the store was asked
	valid     time.Duration // since then
	remaining int64         // what the store has left besides, as it said last
	reset     time.Duration // as the store said when the lease was taken
}

// good reports whether hits may still be spent. A time before the lease began is one at which they may not: see Store.time.
func (g *grant) good(now time.Time) bool {
	elapsed := now.Sub(g.began)
	return elapsed >= 0 && elapsed < g.valid
}

// join adds what is left of another grant. All of it may be spent until the first of the two ends.
func (g *grant) join(other *grant) {
	if g.left == 0 {
		*g = *other
		return
	}
	g.left += other.left
	g.valid = min(g.valid, other.began.Add(other.valid).Sub(g.began))
}

// validity is how long hits that were taken may be spent, from before the store was asked.
func validity(limit *ratelimit.Limit, result *ratelimit.Result) time.Duration {
	valid := limit.Lease.TTL
	switch limit.Algorithm {
	case ratelimit.FixedWindow:
		valid = min(valid, result.ResetAfter)
	case ratelimit.SlidingWindow:
		valid = min(valid, result.ResetAfter-limit.Window) // the hits count for the window after this one, too
	case ratelimit.TokenBucket:
	default:
		return 0
	}
	return valid - valid/drift
}

// period numbers the stretches of time in which the hits of a limit's counters are counted.
func period(limit *ratelimit.Limit, now time.Time) int64 {
	return now.UnixNano() / int64(limit.Lease.TTL)
}

// count notes that hits were asked for.
func (c *counter) count(period, cost int64) {
	switch period {
	case c.period:
	case c.period + 1:
		c.before, c.hits = c.hits, 0
	default:
		c.before, c.hits = 0, 0
	}
	c.period = period
	c.hits += cost
}

// idle reports whether nothing would be lost if the counter were forgotten.
func (c *counter) idle(now time.Time) bool {
	return (c.held.left == 0 || !c.held.good(now)) && c.period+1 < period(c.limit, now)
}

// spend hands out hits, all or none, and says so in result.
func (c *counter) spend(cost int64, now time.Time, result *ratelimit.Result) bool {
	if c.held.left < cost {
		return false
	}
	c.held.left -= cost
	*result = ratelimit.Result{
		Allowed: true, Granted: cost, Remaining: c.left(c.held.remaining),
		ResetAfter: max(c.held.reset-now.Sub(c.held.began), 0),
	}
	return true
}

// left is how many hits are left if the store has so many. It may have said so before this lease was taken.
func (c *counter) left(behind int64) int64 { return min(c.held.left+behind, c.limit.Capacity()) }

// want is how many hits to take ahead now; 0: none.
func (c *counter) want(now time.Time) int64 {
	if !c.known || !c.asked.IsZero() && now.Sub(c.asked) < patience {
		return 0
	}
	asked := max(c.hits, c.before)
	n := min(asked/2, 2*c.size+hot, c.limit.Lease.Max, c.remaining/share)
	if asked < hot || n < 2 {
		return 0
	}
	return n
}

// learn takes in what the store said of a hit of its own.
func (c *counter) learn(result *ratelimit.Result) {
	c.known, c.remaining, c.held.remaining = true, result.Remaining, result.Remaining
	if !result.Allowed {
		c.size = 0
	}
}

// receive takes in a lease that the store has granted, in whole or in part. began is when the store was asked.
func (c *counter) receive(wanted int64, began time.Time, result *ratelimit.Result) {
	c.known, c.remaining = true, result.Remaining
	c.size = wanted
	if !result.Allowed {
		c.size = 0
	}
	fresh := grant{
		left: result.Granted, began: began, valid: validity(c.limit, result),
		remaining: result.Remaining, reset: result.ResetAfter,
	}
	if c.held.left > 0 {
		fresh.join(&c.held)
	}
	c.held = fresh
}
