package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// groups: hits of one charge are charged together or not at all, whoever else charges one of them.
func (h *Harness) groups(t *testing.T) {
	t.Run("no half charge", func(t *testing.T) {
		clock := NewClock(start)
		replicas := h.replicas(t, clock.Now)
		many, few := limit(t, ratelimit.FixedWindow, 1000, time.Hour), limit(t, ratelimit.TokenBucket, 100, time.Hour)
		other := limit(t, ratelimit.SlidingLog, 1000, time.Hour)
		hits := []ratelimit.Hit{
			{Key: "group:many", Limit: many, Cost: 1},
			{Key: "group:few", Limit: few, Cost: 1},
			{Key: "group:other", Limit: other, Cost: 1},
		}
		var group sync.WaitGroup
		for caller := range callers {
			group.Go(func() {
				// In any order of the keys, so that a store which locks in the order of the hits is found out.
				order := []ratelimit.Hit{hits[caller%3], hits[(caller+1)%3], hits[(caller+2)%3]}
				if caller%2 == 0 {
					order[0], order[2] = order[2], order[0]
				}
				charges := []ratelimit.Charge{charge(order...), charge(order[:2]...)}
				replicas[caller%stores].Take(t.Context(), charges)
				for _, c := range charges {
					if c.Err != nil {
						t.Error(c.Err)
					}
					for i := range c.Results {
						if c.Results[i].Granted != c.Results[0].Granted {
							t.Errorf("hits of one charge were granted %d and %d", c.Results[0].Granted, c.Results[i].Granted)
						}
					}
				}
			})
		}
		group.Wait()
		if left := remaining(t, replicas[0], "group:few", few); left != 0 {
			t.Errorf("%d left of the smallest limit", left)
		}
	})
	t.Run("used alike", func(t *testing.T) {
		clock := NewClock(start)
		replicas := h.replicas(t, clock.Now)
		for _, algorithm := range ratelimit.Algorithms() {
			first, second := limit(t, algorithm, 100, time.Hour), limit(t, algorithm, 50, time.Hour)
			keys := [2]string{"alike-" + algorithm.String() + ":a", "alike-" + algorithm.String() + ":b"}
			var group sync.WaitGroup
			for caller := range 100 {
				group.Go(func() {
					replicas[caller%stores].Take(t.Context(), []ratelimit.Charge{charge(
						ratelimit.Hit{Key: keys[0], Limit: first, Cost: 1}, ratelimit.Hit{Key: keys[1], Limit: second, Cost: 1})})
				})
			}
			group.Wait()
			if a, b := remaining(t, replicas[1], keys[0], first), remaining(t, replicas[2], keys[1], second); a != 50 || b != 0 {
				t.Errorf("%v: %d left of 100 and %d of 50, want 50 and 0", algorithm, a, b)
			}
		}
	})
}
