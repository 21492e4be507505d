package storetest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// ids: charges that carry the same ID are charged once. What one caller sees is told in testdata/charges.txt.
func (h *Harness) ids(t *testing.T) {
	t.Run("once, whoever comes first", func(t *testing.T) {
		clock := NewClock(start)
		replicas := h.replicas(t, clock.Now)
		l := limit(t, ratelimit.SlidingWindow, 100, time.Hour)
		results, at := make([]ratelimit.Result, 100), make([]int64, 100)
		var group sync.WaitGroup
		for caller := range results {
			group.Go(func() {
				c := charge(ratelimit.Hit{Key: "once:3600", Limit: l, Cost: 7})
				c.ID = "request-1"
				charges := []ratelimit.Charge{c}
				replicas[caller%stores].Take(t.Context(), charges)
				if charges[0].Err != nil {
					t.Error(charges[0].Err)
				}
				results[caller], at[caller] = charges[0].Results[0], charges[0].At
			})
		}
		group.Wait()
		for i := range results {
			if at[i] != start.UnixMicro() {
				t.Errorf("caller %d: decided at %d, want %d", i, at[i], start.UnixMicro())
			}
			if results[i] != results[0] || !results[i].Allowed || results[i].Remaining != 93 {
				t.Errorf("caller %d: %+v, caller 0: %+v", i, results[i], results[0])
			}
		}
		if left := remaining(t, replicas[0], "once:3600", l); left != 93 {
			t.Errorf("%d left of 100 after 7 were charged once", left)
		}
	})
	t.Run("once in one call", func(t *testing.T) {
		clock := NewClock(start)
		store := h.New(t, clock.Now)
		l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
		first, second, other := charge(ratelimit.Hit{Key: "call:3600", Limit: l, Cost: 2}),
			charge(ratelimit.Hit{Key: "call:3600", Limit: l, Cost: 2}), charge(ratelimit.Hit{Key: "call:3600", Limit: l, Cost: 3})
		first.ID, second.ID, other.ID = "call", "call", "call"
		charges := []ratelimit.Charge{first, other, second}
		store.Take(t.Context(), charges)
		if charges[0].Results[0] != charges[2].Results[0] || !errors.Is(charges[1].Err, ratelimit.ErrConflict) || charges[2].Err != nil {
			t.Errorf("%+v, then %v, then %+v", charges[0].Results[0], charges[1].Err, charges[2].Results[0])
		}
		if left := remaining(t, store, "call:3600", l); left != 8 {
			t.Errorf("%d left of 10 after 2 were charged once", left)
		}
	})
	t.Run("for a time", func(t *testing.T) {
		clock := NewClock(start)
		store := h.New(t, clock.Now)
		l := limit(t, ratelimit.FixedWindow, 10, 24*time.Hour)
		began := start.UnixMicro()
		again := func() int64 {
			c := charge(ratelimit.Hit{Key: "time:86400", Limit: l, Cost: 1})
			c.ID = "time"
			charges := []ratelimit.Charge{c}
			store.Take(t.Context(), charges)
			if charges[0].Err != nil || charges[0].At != began {
				t.Errorf("decided at %d, want %d (%v)", charges[0].At, began, charges[0].Err)
			}
			return remaining(t, store, "time:86400", l)
		}
		elapse := func(d time.Duration) {
			clock.Advance(d)
			if h.Elapse != nil {
				h.Elapse(t, store, d)
			}
		}
		if left := again(); left != 9 {
			t.Errorf("%d left after the first charge, want 9", left)
		}
		elapse(h.IDPeriod - time.Second)
		if left := again(); left != 9 {
			t.Errorf("%d left after a repetition within %v, want 9", left, h.IDPeriod)
		}
		elapse(time.Second)
		began = clock.Now().UnixMicro()
		if left := again(); left != 8 {
			t.Errorf("%d left after a repetition %v later, want 8", left, h.IDPeriod)
		}
	})
	t.Run("of any bytes", func(t *testing.T) {
		clock := NewClock(start)
		store := h.New(t, clock.Now)
		l := limit(t, ratelimit.FixedWindow, 100, time.Hour)
		ids := append(hostile(), strings.Repeat("x", 1<<16), strings.Repeat("x", 1<<16)+"y")
		for range 2 {
			for _, id := range ids {
				c := charge(ratelimit.Hit{Key: "bytes:3600", Limit: l, Cost: 1})
				c.ID = id
				charges := []ratelimit.Charge{c}
				store.Take(t.Context(), charges)
				if charges[0].Err != nil {
					t.Errorf("id %.40q: %v", id, charges[0].Err)
				}
			}
		}
		// One of the hostile strings is empty, and that is no ID: it is charged twice.
		if left := remaining(t, store, "bytes:3600", l); left != 100-int64(len(ids))-1 {
			t.Errorf("%d left of 100 after %d IDs", left, len(ids))
		}
	})
}
