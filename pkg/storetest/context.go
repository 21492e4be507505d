package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// context: a call whose time is over comes back at once, and says for each charge whether it was decided.
func (h *Harness) context(t *testing.T) {
	clock := NewClock(start)
	store := h.New(t, clock.Now)
	l := limit(t, ratelimit.FixedWindow, 1000, time.Hour)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for name, ctx := range map[string]context.Context{"canceled": canceled, "expired": expired} {
		t.Run(name, func(t *testing.T) {
			key := name + ":3600"
			charges := make([]ratelimit.Charge, 100)
			for i := range charges {
				charges[i] = charge(ratelimit.Hit{Key: key, Limit: l, Cost: 1})
			}
			charges[99].ID = name
			began := time.Now()
			store.Take(ctx, charges)
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %v", took)
			}
			var decided int64
			for i := range charges {
				if charges[i].Err == nil {
					decided += charges[i].Results[0].Granted
				}
			}
			// A charge with an error may have been counted or not; one without must have been.
			if left := remaining(t, store, key, l); left > 1000-decided || left < 900 {
				t.Errorf("%d left of 1000 after %d of 100 charges were decided", left, decided)
			}
			if err := store.Reset(ctx, []string{key}); err == nil {
				if left := remaining(t, store, key, l); left != 1000 {
					t.Errorf("%d left after a reset without an error", left)
				}
			}
		})
	}
}
