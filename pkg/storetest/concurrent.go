package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	stores  = 3
	callers = 300
	allowed = 1000
)

// concurrent: three replicas, three hundred callers, one key, and exactly the limit is allowed.
func (h *Harness) concurrent(t *testing.T) {
	for _, algorithm := range ratelimit.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			clock := NewClock(start.Add(time.Second))
			replicas := h.replicas(t, clock.Now)
			l := limit(t, algorithm, allowed, time.Hour)
			var granted, wrong atomic.Int64
			var group sync.WaitGroup
			for caller := range callers {
				group.Go(func() {
					// 1,200 hits: some alone, some two at a time, some several charges in a call.
					store := replicas[caller%stores]
					hit := ratelimit.Hit{Key: "concurrent:3600", Limit: l, Cost: 1 + int64(caller%2)}
					charges := []ratelimit.Charge{charge(hit), charge(hit)}
					store.Take(t.Context(), charges)
					granted.Add(take(t.Context(), t, store, ratelimit.Hit{Key: hit.Key, Limit: l, Cost: 1}).Granted)
					for _, c := range charges {
						if c.Err != nil {
							t.Error(c.Err)
						}
						granted.Add(c.Results[0].Granted)
						if r := c.Results[0]; r.Allowed != (r.Granted == hit.Cost) || r.Remaining < 0 || r.Remaining > allowed {
							wrong.Add(1)
						}
					}
				})
			}
			group.Wait()
			// A hit of two that found one left was denied, so the last one may still be there.
			left := remaining(t, replicas[0], "concurrent:3600", l)
			if left > 1 || granted.Load()+left != allowed || wrong.Load() != 0 {
				t.Errorf("%d granted, %d left, %d results that contradict themselves; want %d in all", granted.Load(), left, wrong.Load(), allowed)
			}
		})
	}
	t.Run("hits and refunds", func(t *testing.T) {
		clock := NewClock(start)
		replicas := h.replicas(t, clock.Now)
		for _, algorithm := range ratelimit.Algorithms() {
			l := limit(t, algorithm, 50, time.Hour)
			hit := ratelimit.Hit{Key: fmt.Sprintf("refunds:%v:3600", algorithm), Limit: l, Cost: 5}
			back := hit
			back.Cost = -5
			var balance atomic.Int64
			var group sync.WaitGroup
			for caller := range 100 {
				group.Go(func() {
					store := replicas[caller%stores]
					if r := take(t.Context(), t, store, hit); r.Allowed {
						balance.Add(5)
						if caller%4 != 0 {
							balance.Add(take(t.Context(), t, store, back).Granted)
						}
					}
				})
			}
			group.Wait()
			if left := remaining(t, replicas[0], hit.Key, l); left+balance.Load() != 50 {
				t.Errorf("%v: %d charged and not given back, %d left of 50", algorithm, balance.Load(), left)
			}
		}
	})
}
