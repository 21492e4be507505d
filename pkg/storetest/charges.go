package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// charges: what one call may carry.
func (h *Harness) charges(t *testing.T) {
	clock := NewClock(start)
	store := h.New(t, clock.Now)
	l := limit(t, ratelimit.TokenBucket, 10, time.Minute)

	t.Run("none", func(t *testing.T) {
		store.Take(t.Context(), nil)
		store.Take(t.Context(), []ratelimit.Charge{})
		if err := store.Reset(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("without hits", func(t *testing.T) {
		charges := []ratelimit.Charge{{}, charge(ratelimit.Hit{Key: "empty:60", Limit: l, Cost: 1}), {ID: "empty"}}
		store.Take(t.Context(), charges)
		for i := range charges {
			if charges[i].Err != nil {
				t.Errorf("charge %d: %v", i, charges[i].Err)
			}
		}
		if got := charges[1].Results[0].Granted; got != 1 {
			t.Errorf("the charge between two empty ones was granted %d", got)
		}
	})
	t.Run("decided in order", func(t *testing.T) {
		for _, algorithm := range ratelimit.Algorithms() {
			l := limit(t, algorithm, 10, time.Minute)
			key := "order-" + algorithm.String() + ":60"
			var charges []ratelimit.Charge
			for _, cost := range []int64{4, 7, 5, -3, 4, 1} {
				charges = append(charges, charge(ratelimit.Hit{Key: key, Limit: l, Cost: cost}))
			}
			store.Take(t.Context(), charges)
			for i, want := range []int64{4, 0, 5, -3, 4, 0} {
				if got := charges[i].Results[0].Granted; got != want {
					t.Errorf("%v: charge %d was granted %d, want %d", algorithm, i, got, want)
				}
			}
		}
	})
	t.Run("groups in order", func(t *testing.T) {
		a, b := ratelimit.Hit{Key: "both:a", Limit: l, Cost: 6}, ratelimit.Hit{Key: "both:b", Limit: l, Cost: 6}
		charges := []ratelimit.Charge{charge(a, b), charge(b, a), charge(ratelimit.Hit{Key: b.Key, Limit: l, Cost: 4})}
		store.Take(t.Context(), charges)
		for i, want := range []int64{6, 0, 4} {
			if got := charges[i].Results[0].Granted; got != want {
				t.Errorf("charge %d was granted %d, want %d", i, got, want)
			}
		}
	})
	t.Run("a thousand", func(t *testing.T) {
		charges := make([]ratelimit.Charge, 1000)
		for i := range charges {
			charges[i] = charge(ratelimit.Hit{Key: fmt.Sprintf("thousand-%d:60", i%90), Limit: l, Cost: 1})
		}
		store.Take(t.Context(), charges)
		for i := range charges {
			// Each key comes 11 or 12 times, and has 10.
			if got, want := charges[i].Results[0].Allowed, i < 900; got != want || charges[i].Err != nil {
				t.Fatalf("charge %d: allowed is %t, error %v; want %t", i, got, charges[i].Err, want)
			}
		}
	})
	t.Run("what was in the results does not matter", func(t *testing.T) {
		c := charge(ratelimit.Hit{Key: "stale:60", Limit: l, Cost: 1})
		c.Err, c.Degraded = ratelimit.ErrConflict, ratelimit.FailOpen
		c.Results[0] = ratelimit.Result{Granted: 9, Remaining: 99, RetryAfter: time.Hour, ResetAfter: time.Hour}
		charges := []ratelimit.Charge{c}
		store.Take(t.Context(), charges)
		want := ratelimit.Result{Allowed: true, Granted: 1, Remaining: 9, ResetAfter: 6 * time.Second}
		if got := charges[0]; got.Err != nil || got.Degraded != ratelimit.FailureDefault || got.Results[0] != want {
			t.Errorf("error %v, degraded %v, %+v; want %+v", got.Err, got.Degraded, got.Results[0], want)
		}
	})
	t.Run("reset", func(t *testing.T) {
		var keys []string
		for _, algorithm := range ratelimit.Algorithms() {
			key := "reset-" + algorithm.String() + ":60"
			take(t.Context(), t, store, ratelimit.Hit{Key: key, Limit: limit(t, algorithm, 3, time.Minute), Cost: 3})
			keys = append(keys, key, key+"-never-used")
		}
		if err := store.Reset(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		for i, algorithm := range ratelimit.Algorithms() {
			if left := remaining(t, store, keys[2*i], limit(t, algorithm, 3, time.Minute)); left != 3 {
				t.Errorf("%v: %d left of 3 after a reset", algorithm, left)
			}
		}
	})
}
