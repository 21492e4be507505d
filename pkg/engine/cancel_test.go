package engine_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// All charges of a request can be cancelled with it. If the store leaves one out there is no decision, and no metric of one.
func TestCancelled(t *testing.T) {
	h := start(
		t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(5)}, rules.Definition{Key: "ip", Limits: perMinute(5)},
		rules.Definition{Key: "watched", Limits: perMinute(5), Shadow: true},
	)
	h.store.fail = func(charge *ratelimit.Charge) {
		if charge.Cancelled != nil && charge.Cancelled.Load() {
			charge.Err = ratelimit.ErrCancelled
		}
	}
	for id, charges := range map[string]int{"": 3, "id": 2} {
		h.store.asked, h.recorder.lines, h.recorder.answered = nil, nil, 0
		gone, stays := asking(entry("user", "a"), entry("ip", "a"), entry("watched", "a")), asking(entry("user", "b"))
		gone.ID = id
		gone.Cancelled, stays.Cancelled = new(atomic.Bool), new(atomic.Bool)
		gone.Cancelled.Store(true)
		b := &engine.Batch{Requests: []ratelimit.Request{gone, stays}}
		h.Decide(t.Context(), b)
		if d := b.Decisions[0]; !d.Made || !errors.Is(d.Err, ratelimit.ErrCancelled) || d.Over || d.Degraded {
			t.Errorf("the cancelled request: %+v", d)
		}
		if d := b.Decisions[1]; d.Err != nil || d.Degraded {
			t.Errorf("the other one: %+v", d)
		}
		if h.recorder.answered != 1 || len(h.recorder.lines) != 1 {
			t.Errorf("recorded is %v", h.recorder.lines)
		}
		if len(h.store.asked) != charges+1 {
			t.Fatalf("%d charges", len(h.store.asked))
		}
		for i := range h.store.asked {
			want := gone.Cancelled
			if i == charges {
				want = stays.Cancelled
			}
			if h.store.asked[i].Cancelled != want {
				t.Errorf("charge %d is cancelled with another request", i)
			}
		}
	}
}
