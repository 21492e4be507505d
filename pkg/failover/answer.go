package failover

import (
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// retryAfter is what a denied client is told while the store is away: about as long as it takes to get it back.
const retryAfter = time.Second

// answer decides the charges that the store could not, each by its mode.
func (s *Store) answer(charges []ratelimit.Charge) {
	answered, locals := 0, 0
	for i := range charges {
		c := &charges[i]
		if !answerable(c.Err) {
			continue
		}
		answered++
		switch mode := s.mode(c); mode {
		case ratelimit.FailLocal:
			locals++
		default:
			answerAlone(c, mode)
		}
	}
	if locals > 0 {
		s.answerLocally(charges, locals)
	}
	s.taken.Add(uint64(answered))
}

// mode is the one that answers a failed charge.
func (s *Store) mode(c *ratelimit.Charge) ratelimit.FailureMode {
	mode := c.OnFailure
	if mode == ratelimit.FailureDefault || mode == ratelimit.FailLocal && s.options.Local == nil {
		return s.options.Mode
	}
	return mode
}

// answerAlone decides a charge without any counter. Every mode but FailClosed allows.
func answerAlone(c *ratelimit.Charge, mode ratelimit.FailureMode) {
	c.Err, c.Degraded, c.At = nil, mode, 0
	for i := range c.Results {
		if mode == ratelimit.FailClosed {
			c.Results[i] = denied(&c.Hits[i])
		} else {
			c.Results[i] = allowed(&c.Hits[i])
		}
	}
}

// allowed is what a store with a counter never used says, but for a cost above the limit, which is allowed too. What is
// given back is lost.
func allowed(hit *ratelimit.Hit) ratelimit.Result {
	cost := max(hit.Cost, 0)
	return ratelimit.Result{Allowed: true, Granted: cost, Remaining: max(hit.Limit.Capacity()-cost, 0)}
}

// denied is what a store says that has nothing left. Giving back is always allowed, though it is lost.
func denied(hit *ratelimit.Hit) ratelimit.Result {
	if hit.Cost < 0 {
		return ratelimit.Result{Allowed: true, ResetAfter: retryAfter}
	}
	return ratelimit.Result{RetryAfter: retryAfter, ResetAfter: retryAfter}
}
