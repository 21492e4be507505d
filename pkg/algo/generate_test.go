package algo_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// drawLimit makes small limits, whose edges steps meet often, and some of any size.
func drawLimit(t *rapid.T, algorithm ratelimit.Algorithm) *ratelimit.Limit {
	for {
		l := &ratelimit.Limit{Algorithm: algorithm}
		if rapid.Float64Range(0, 1).Draw(t, "size") < 0.8 {
			l.Count = rapid.Int64Range(1, 20).Draw(t, "count")
			l.Burst = rapid.Int64Range(0, 30).Draw(t, "burst")
			l.Window = time.Duration(rapid.Int64Range(1000, 5000).Draw(t, "window")) * time.Microsecond
		} else {
			l.Count = rapid.Int64Range(0, ratelimit.MaxCount).Draw(t, "count")
			l.Burst = rapid.Int64Range(0, ratelimit.MaxCount).Draw(t, "burst")
			l.Window = time.Duration(rapid.Int64Range(1000, ratelimit.MaxWindow.Microseconds()).Draw(t, "window")) * time.Microsecond
		}
		if algorithm != ratelimit.TokenBucket && algorithm != ratelimit.LeakyBucket {
			l.Burst = 0
		}
		if algorithm == ratelimit.SlidingLog {
			l.Count = min(l.Count, ratelimit.MaxLogCount)
		}
		if l.Check() == nil {
			return l
		}
	}
}

func drawAlgorithm(t *rapid.T) ratelimit.Algorithm {
	return rapid.SampledFrom(ratelimit.Algorithms()).Draw(t, "algorithm")
}

// drawNow steps on from the time of the last call, mostly by less than a window and sometimes back.
func drawNow(t *rapid.T, now int64, l *ratelimit.Limit) int64 {
	window := l.Window.Microseconds()
	switch rapid.IntRange(0, 9).Draw(t, "step") {
	case 0:
		return now - rapid.Int64Range(0, 3*window).Draw(t, "back")
	case 1:
		return now + rapid.Int64Range(0, 3*window).Draw(t, "far")
	case 2:
		return now
	default:
		return now + rapid.Int64Range(0, window/4).Draw(t, "on")
	}
}

func drawHit(t *rapid.T, l *ratelimit.Limit) ratelimit.Hit {
	hit := ratelimit.Hit{Limit: l, Partial: rapid.Bool().Draw(t, "partial")}
	capacity := l.Capacity()
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		hit.Cost = 0
	case 1:
		hit.Cost = -rapid.Int64Range(1, capacity+2).Draw(t, "back")
	case 2:
		hit.Cost = rapid.Int64Range(1, capacity+2).Draw(t, "any")
	case 3:
		hit.Cost = rapid.SampledFrom([]int64{ratelimit.MaxCost, -ratelimit.MaxCost, max(capacity, 1), capacity + 1}).Draw(t, "edge")
	default:
		hit.Cost = rapid.Int64Range(1, capacity/3+1).Draw(t, "cost")
	}
	return hit
}

const epoch = int64(1_767_225_600_000_000)

// counter is a state with the time of the last call on it.
type counter struct {
	state algo.State
	now   int64
}

// take decides a hit on the counter, and checks what holds of every result.
func (c *counter) take(t *rapid.T, hit ratelimit.Hit, now int64) ratelimit.Result {
	before := clone(c.state)
	c.now = now
	states, results := []algo.State{c.state}, make([]ratelimit.Result, 1)
	changed := algo.Take([]ratelimit.Hit{hit}, states, now, results)
	c.state = states[0]
	r := results[0]
	say := func(what string, args ...any) {
		t.Helper()
		t.Fatalf("%s: %s cost %d of %+v at %d: %+v, state %+v", fmt.Sprintf(what, args...), hit.Limit.Algorithm, hit.Cost, *hit.Limit, now, r, before)
	}
	capacity := hit.Limit.Capacity()
	switch {
	case changed != (r.Granted != 0):
		say("changed is %t", changed)
	case !changed && !equal(c.state, before):
		say("no charge left a trace: %+v", c.state)
	case changed && c.state.At != max(now, seen(before, hit.Limit)):
		say("the time was not kept: %d", c.state.At)
	case r.Remaining < 0 || r.Remaining > capacity:
		say("remaining is not within the capacity")
	case r.RetryAfter < 0 || r.ResetAfter < 0 || r.Allowed && r.RetryAfter != 0:
		say("a wrong duration")
	case hit.Cost > 0 && r.Allowed != (r.Granted == hit.Cost):
		say("allowed contradicts granted")
	case hit.Cost > 0 && !hit.Partial && !r.Allowed && r.Granted != 0:
		say("granted though denied")
	case hit.Cost > 0 && (r.Granted < 0 || r.Granted > capacity):
		say("granted is not within the capacity")
	case hit.Cost <= 0 && (r.Granted > 0 || r.Granted < hit.Cost || hit.Cost < 0 && !r.Allowed):
		say("giving back went wrong")
	case max(c.state.A, -c.state.A, c.state.B, -c.state.B, c.state.Unit) > 1<<53:
		say("numbers grew: %+v", c.state)
	}
	return r
}

// walk takes a counter through calls under limits of one algorithm, or through one limit's if reload is false.
func walk(t *rapid.T, l *ratelimit.Limit, reload bool) (c counter, last *ratelimit.Limit) {
	c.now = epoch + rapid.Int64Range(0, 1e10).Draw(t, "start")
	for range rapid.IntRange(0, 30).Draw(t, "calls") {
		if reload && rapid.IntRange(0, 5).Draw(t, "reload") == 0 {
			l = drawLimit(t, l.Algorithm)
		}
		c.take(t, drawHit(t, l), drawNow(t, c.now, l))
	}
	return c, l
}

func (c *counter) clone() counter { return counter{state: clone(c.state), now: c.now} }

func clone(s algo.State) algo.State {
	s.Log = slices.Clone(s.Log)
	return s
}

func equal(a, b algo.State) bool {
	return slices.Equal(a.Log, b.Log) && a.At == b.At && a.A == b.A && a.B == b.B && a.Unit == b.Unit && a.Algorithm == b.Algorithm
}

// seen is the time that a call on the state cannot go back behind.
func seen(s algo.State, l *ratelimit.Limit) int64 {
	if s.Algorithm != l.Algorithm {
		return -1 << 62
	}
	return s.At
}
