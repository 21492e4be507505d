package stats

import (
	"math"
	"sync/atomic"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// The counters of a rule, in the order of their names.
const (
	nearLimit = iota
	overLimit
	overLimitWithLocalCache
	shadowMode
	totalHits
	withinLimit
	counters
)

var counterNames = [counters]string{
	"near_limit", "over_limit", "over_limit_with_local_cache", "shadow_mode", "total_hits", "within_limit",
}

// counter is a counter and what of it has been sent.
type counter struct {
	atomic.Uint64
	sent uint64 // the Flusher's alone
}

// grown returns what has been counted since it was last called. It is for one goroutine.
func (c *counter) grown() uint64 {
	now := c.Load()
	delta := now - c.sent
	c.sent = now
	return delta
}

// series are the counters of one name.
type series struct {
	name   string // sanitised; without what all names begin with
	counts [counters]counter
}

func (s *series) used() bool {
	for i := range s.counts {
		if s.counts[i].Load() > 0 {
			return true
		}
	}
	return false
}

// decided counts the decision about one descriptor. A cost that goes over the limit is split: what was granted is within it,
// and near it from the ratio on, and only the rest is over.
func (s *series) decided(status *engine.Status, ratio float32) {
	cost := uint64(status.Cost)
	s.counts[totalHits].Add(cost)
	switch status.Outcome {
	case ratelimit.OutcomeAllowed:
		s.counts[withinLimit].Add(cost)
		if near := hitsNear(status, ratio); near > 0 {
			s.counts[nearLimit].Add(near)
		}
	case ratelimit.OutcomeDenied, ratelimit.OutcomeShadowDenied:
		over := cost - uint64(min(max(status.Granted, 0), status.Cost))
		s.counts[overLimit].Add(over)
		if near := hitsNear(status, ratio); near > 0 {
			s.counts[nearLimit].Add(near)
		}
		if status.Cached {
			s.counts[overLimitWithLocalCache].Add(cost)
		}
		if status.Outcome == ratelimit.OutcomeShadowDenied && status.Rule != nil && status.Rule.Shadow && !status.Override {
			s.counts[shadowMode].Add(over)
		}
	case ratelimit.OutcomeLocal:
		if status.Over {
			s.counts[overLimit].Add(cost)
		} else {
			s.counts[withinLimit].Add(cost)
		}
	case ratelimit.OutcomeNone, ratelimit.OutcomeFailedOpen, ratelimit.OutcomeFailedClosed:
		// No store has decided: there is a hit, and nothing to say of the limit.
	}
}

// hitsNear is how many of the granted hits lie between the ratio and the limit.
func hitsNear(status *engine.Status, ratio float32) uint64 {
	if status.Limit == nil || status.Granted <= 0 {
		return 0
	}
	capacity := status.Limit.Capacity()
	used := capacity - status.Remaining
	if status.Outcome != ratelimit.OutcomeAllowed {
		used = capacity
	}
	// The reference reckons in 32 bits, and so do its users' expectations at the edge.
	from := int64(math.Floor(float64(float32(capacity) * ratio)))
	return uint64(min(max(used-from, 0), status.Granted))
}
