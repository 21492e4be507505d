package algo_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/ratelimit"
)

func FuzzPromise(f *testing.F)   { f.Fuzz(rapid.MakeFuzz(promise)) }
func FuzzDurations(f *testing.F) { f.Fuzz(rapid.MakeFuzz(durations)) }
func TestPromise(t *testing.T)   { rapid.Check(t, promise) }
func TestDurations(t *testing.T) { rapid.Check(t, durations) }
func TestClockBack(t *testing.T) { rapid.Check(t, clockBack) }
func TestGroups(t *testing.T)    { rapid.Check(t, groups) }
func TestAnyReload(t *testing.T) { rapid.Check(t, anyReload) }
func TestLogMemory(t *testing.T) { rapid.Check(t, logMemory) }
func TestRefundAll(t *testing.T) { rapid.Check(t, refundAll) }

// grant is what was charged when.
type grant struct{ at, hits int64 }

// promise: never more than the algorithm's constant says, whatever the order and the times of the calls.
func promise(t *rapid.T) {
	l := drawLimit(t, drawAlgorithm(t))
	c := counter{now: epoch + rapid.Int64Range(0, 1e10).Draw(t, "start")}
	var grants []grant
	for range rapid.IntRange(0, 60).Draw(t, "calls") {
		hit := drawHit(t, l)
		hit.Cost = max(hit.Cost, 0) // what is given back may come again, so nothing is promised of the sum
		r := c.take(t, hit, drawNow(t, c.now, l))
		if r.Granted > 0 {
			grants = append(grants, grant{c.state.At, r.Granted})
			if over := broken(l, grants); over != "" {
				t.Fatalf("%s: %+v: %v", over, *l, grants)
			}
		}
	}
}

// broken tells how the last grant breaks the limit's promise, if it does.
func broken(l *ratelimit.Limit, grants []grant) string {
	now, window := grants[len(grants)-1].at, l.Window.Microseconds()
	start, _ := l.Bounds(now)
	between := func(from, to int64) (sum int64) {
		for _, g := range grants {
			if g.at >= from && g.at < to {
				sum += g.hits
			}
		}
		return sum
	}
	switch l.Algorithm {
	case ratelimit.FixedWindow:
		if between(start, now+1) > l.Count {
			return "more than the count in a window"
		}
	case ratelimit.SlidingLog:
		if between(now-window+1, now+1) > l.Count {
			return "more than the count in an interval"
		}
	case ratelimit.SlidingWindow:
		weighted := new(big.Rat).Mul(big.NewRat(between(start-window, start), 1), big.NewRat(start+window-now, window))
		weighted.Add(weighted, big.NewRat(between(start, now+1), 1))
		// Counts whose product with the window is above 2^53 may be off by a 2048th of a hit, see share.
		if weighted.Cmp(new(big.Rat).Add(big.NewRat(l.Count, 1), big.NewRat(1, 2048))) > 0 {
			return "the weighted sum is above the count"
		}
	case ratelimit.TokenBucket, ratelimit.LeakyBucket:
		for _, first := range grants {
			allowed := new(big.Rat).Mul(big.NewRat(l.Count, window), big.NewRat(now-first.at, 1))
			allowed.Add(allowed, big.NewRat(l.Capacity(), 1))
			if new(big.Rat).SetInt64(between(first.at, now+1)).Cmp(allowed) > 0 {
				return "more than burst and rate allow since one of the grants"
			}
		}
	}
	return ""
}

// durations: RetryAfter and ResetAfter are the first moment, to the microsecond, at which they are true.
func durations(t *rapid.T) {
	c, l := walk(t, drawLimit(t, drawAlgorithm(t)), true)
	hit := drawHit(t, l)
	now := drawNow(t, c.now, l)
	r := c.take(t, hit, now)
	now = max(now, seen(c.state, l))

	hit.Partial = false
	hit.Cost = max(hit.Cost, 1)
	allowed := func(at int64) bool {
		later := c.clone()
		return later.take(t, hit, at).Allowed
	}
	retry, reset := r.RetryAfter.Microseconds(), r.ResetAfter.Microseconds()
	switch {
	case r.Allowed:
	case hit.Cost > l.Capacity():
		if retry != reset {
			t.Fatalf("a cost that never fits may try again after %v, not after %v", r.RetryAfter, r.ResetAfter)
		}
	case !allowed(now + retry):
		t.Fatalf("denied after the wait of %d: %+v, state %+v", retry, *l, c.state)
	case retry == 0 || allowed(now+retry-1):
		t.Fatalf("allowed before the wait of %d is over: %+v, state %+v", retry, *l, c.state)
	}

	look := ratelimit.Hit{Limit: l}
	if reset > 0 {
		early := c.clone()
		left := early.take(t, look, now+reset-1).Remaining
		if used := l.Algorithm != ratelimit.FixedWindow || r.Remaining < l.Capacity(); used && left == l.Capacity() && left > 0 {
			t.Fatalf("all is there before the reset after %d: %+v, state %+v", reset, *l, c.state)
		}
	}
	for range 5 {
		old, fresh := c.clone(), counter{}
		next := drawHit(t, l)
		if a, b := old.take(t, next, now+reset), fresh.take(t, next, now+reset); a != b {
			t.Fatalf("after the reset %+v, of a state never used %+v: cost %d of %+v, state %+v", a, b, next.Cost, *l, c.state)
		}
	}
}

// clockBack: a call before the state's time is the same as one at it.
func clockBack(t *rapid.T) {
	c, l := walk(t, drawLimit(t, drawAlgorithm(t)), false)
	if c.state.Algorithm == 0 {
		return
	}
	at, back := c.clone(), c.clone()
	for range rapid.IntRange(1, 5).Draw(t, "calls") {
		hit := drawHit(t, l)
		a := at.take(t, hit, c.state.At)
		b := back.take(t, hit, c.state.At-rapid.Int64Range(0, 1e13).Draw(t, "back"))
		if a != b || !equal(at.state, back.state) {
			t.Fatalf("at the state's time %+v, before it %+v: cost %d of %+v", a, b, hit.Cost, *l)
		}
	}
}

// groups: all are charged as each would be by itself, or none is; and what it would be by itself is told.
func groups(t *rapid.T) {
	n := rapid.IntRange(2, 4).Draw(t, "hits")
	now := epoch + rapid.Int64Range(0, 1e6).Draw(t, "now")
	hits, states, alone := make([]ratelimit.Hit, n), make([]algo.State, n), make([]ratelimit.Result, n)
	all := true
	for i := range hits {
		c, l := walk(t, drawLimit(t, drawAlgorithm(t)), false)
		hits[i], states[i] = drawHit(t, l), c.state
		hits[i].Partial = false
		single := c.clone()
		alone[i] = single.take(t, hits[i], now)
		all = all && alone[i].Allowed
		hits[i].Partial = rapid.Bool().Draw(t, "partial")
	}
	before := make([]algo.State, n)
	for i := range states {
		before[i] = clone(states[i])
	}
	results := make([]ratelimit.Result, n)
	changed := algo.Take(hits, states, now, results)
	for i := range hits {
		got, want := results[i], alone[i]
		switch {
		case all && got != want:
			t.Fatalf("hit %d is %+v, by itself %+v", i, got, want)
		case !all && (changed || !equal(states[i], before[i]) || got.Granted != 0):
			t.Fatalf("hit %d of a denied group was charged: %+v", i, got)
		case !all && (got.Allowed != want.Allowed || got.RetryAfter != want.RetryAfter):
			t.Fatalf("hit %d of a denied group is %+v, by itself %+v", i, got, want)
		}
	}
}

// anyReload: a state meets limits of any algorithm, and nothing breaks (see counter.take).
func anyReload(t *rapid.T) {
	var c counter
	c.now = epoch
	for range rapid.IntRange(1, 40).Draw(t, "calls") {
		l := drawLimit(t, drawAlgorithm(t))
		other := c.state.Algorithm != l.Algorithm
		fresh := counter{}
		hit, now := drawHit(t, l), drawNow(t, c.now, l)
		r := c.take(t, hit, now)
		if want := fresh.take(t, hit, now); other && r != want {
			t.Fatalf("under another algorithm %+v, of a state never used %+v", r, want)
		}
	}
}

// refundAll: giving back everything leaves a counter never used, and never more than was charged comes back.
func refundAll(t *rapid.T) {
	c, l := walk(t, drawLimit(t, drawAlgorithm(t)), true)
	// Twice, because both windows of a sliding window may hold as much as the largest cost.
	for range 2 {
		c.take(t, ratelimit.Hit{Limit: l, Cost: -ratelimit.MaxCost}, c.now)
	}
	if r := c.take(t, ratelimit.Hit{Limit: l}, c.now); r.Remaining != l.Capacity() {
		t.Fatalf("%d left of %d after everything was given back", r.Remaining, l.Capacity())
	}
	if r := c.take(t, ratelimit.Hit{Limit: l, Cost: -ratelimit.MaxCost}, c.now); r.Granted != 0 {
		t.Fatalf("%d were given back twice", r.Granted)
	}
}

// logMemory: a log never holds more than twice as many marks as there can be hits.
func logMemory(t *rapid.T) {
	l := drawLimit(t, ratelimit.SlidingLog)
	c := counter{now: epoch}
	for range rapid.IntRange(0, 200).Draw(t, "calls") {
		hit := drawHit(t, l)
		c.take(t, hit, drawNow(t, c.now, l))
		if most := max(8, 2*l.Count); int64(cap(c.state.Log)) > most {
			t.Fatalf("a log for %d hits has room for %d marks", l.Count, cap(c.state.Log))
		}
	}
}
