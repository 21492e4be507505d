package algo

import (
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Take decides one charge at the time now: either every hit is allowed and charged to its state, or none is. A single
// partial hit is granted what is there. It fills results as ratelimit.Result says, and reports whether any state was
// changed; such a state equals one never used at its At plus its result's ResetAfter.
//
// states and results have one element per hit. Every limit has passed Limit.Check, costs are within ratelimit.MaxCost,
// and no two hits are for the same counter.
func Take(hits []ratelimit.Hit, states []State, now int64, results []ratelimit.Result) (changed bool) {
	if len(hits) == 1 {
		results[0], changed = charge(&hits[0], &states[0], now)
		return changed
	}
	allowed := true
	for i := range hits {
		results[i] = look(&hits[i], &states[i], now)
		allowed = allowed && results[i].Allowed
	}
	if !allowed {
		return false
	}
	for i := range hits {
		result, did := charge(&hits[i], &states[i], now)
		results[i] = result
		changed = changed || did
	}
	return changed
}

// look tells how a hit stands without charging it.
func look(hit *ratelimit.Hit, s *State, now int64) ratelimit.Result {
	before := *s
	now = open(s, hit.Limit, now)
	allowed, _ := decide(hit, algorithms[hit.Limit.Algorithm].available(s, hit.Limit, now))
	result := report(hit, s, now, allowed, 0)
	*s = before
	return result
}

// charge decides a hit by itself. It works on the state in place, since a copy would have to be allocated, and puts back
// what was there unless something was charged.
func charge(hit *ratelimit.Hit, s *State, now int64) (result ratelimit.Result, changed bool) {
	before := *s
	now = open(s, hit.Limit, now)
	a := algorithms[hit.Limit.Algorithm]
	allowed, granted := decide(hit, a.available(s, hit.Limit, now))
	if granted != 0 {
		granted = a.add(s, hit.Limit, now, granted)
	}
	result = report(hit, s, now, allowed, granted)
	if granted == 0 {
		*s = before
		return result, false
	}
	s.At = now
	return result, true
}

// open advances s to now, or to the latest time that it has seen, which it returns.
func open(s *State, l *ratelimit.Limit, now int64) int64 {
	if s.Algorithm != l.Algorithm {
		*s = State{Algorithm: l.Algorithm, At: now}
	}
	now = max(now, s.At)
	algorithms[l.Algorithm].advance(s, l, now)
	return now
}

// decide tells whether a hit is allowed by itself while available hits are left, and how much of it to charge.
func decide(hit *ratelimit.Hit, available int64) (allowed bool, grant int64) {
	switch {
	case hit.Cost < 0:
		return true, hit.Cost
	case hit.Cost == 0:
		return available >= 1, 0
	case hit.Cost <= available:
		return true, hit.Cost
	case hit.Partial:
		return false, max(available, 0)
	default:
		return false, 0
	}
}

// report describes the state s to the client whose hit was decided.
func report(hit *ratelimit.Hit, s *State, now int64, allowed bool, granted int64) ratelimit.Result {
	l := hit.Limit
	a := algorithms[l.Algorithm]
	reset := a.idle(s, l, now)
	result := ratelimit.Result{
		Allowed:    allowed,
		Granted:    granted,
		Remaining:  max(a.available(s, l, now), 0),
		ResetAfter: micros(reset),
	}
	if !allowed {
		if cost := max(hit.Cost, 1); cost > l.Capacity() {
			result.RetryAfter = micros(reset)
		} else {
			result.RetryAfter = micros(a.wait(s, l, now, cost))
		}
	}
	return result
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
