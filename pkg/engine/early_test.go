package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// patient is a store that knows some keys by heart and waits for others.
type patient struct {
	engine.Store
	known map[string]bool
	taken []string
}

func (p *patient) Take(ctx context.Context, charges []ratelimit.Charge) {
	waits := false
	for i := range charges {
		c := &charges[i]
		if p.known[c.Hits[0].Key] {
			c.Err, c.Results[0] = nil, ratelimit.Result{}
		} else {
			waits = true
		}
	}
	may := !waits || engine.Waiting(ctx)
	if waits && engine.Waiting(ctx) != may {
		panic("another answer the second time")
	}
	for i := range charges {
		switch c := &charges[i]; {
		case p.known[c.Hits[0].Key]:
		case may:
			p.taken = append(p.taken, strings.Clone(c.Hits[0].Key))
			c.Err, c.Results[0] = nil, ratelimit.Result{Allowed: true, Granted: c.Hits[0].Cost}
		default:
			c.Err = engine.ErrPostponed
		}
	}
}

// What needs no store is decided before the store is waited for, and once.
func TestEarlyDecisions(t *testing.T) {
	for _, may := range []bool{true, false} {
		table := edge(
			t,
			rules.Definition{Key: "user", Limits: perMinute(5)},
			rules.Definition{Key: "free", RateLimit: &rules.RateLimit{Unlimited: true}},
			rules.Definition{Key: "foe", Action: ratelimit.ActionDeny},
		)
		store := &patient{known: map[string]bool{}}
		recorded := new(recorder)
		limiter := engine.New(store, engine.Options{Recorder: recorded})
		limiter.SetTable(table)
		b := &engine.Batch{Requests: []ratelimit.Request{asking(entry("user", "over"))}}
		limiter.Decide(t.Context(), b) // learns the key
		store.known[store.taken[0]] = true
		store.taken = nil
		b.Reset()
		recorded.lines = nil

		b.Requests = []ratelimit.Request{
			asking(entry("user", "a")), asking(entry("free", "x")), asking(entry("user", "over")), asking(entry("foe", "x")), asking(entry("user", "over"), entry("user", "b")), {Domain: "edge"}, asking(entry("free", "x"), entry("user", "c")),
		}
		want := []bool{false, true, true, true, false, true, false}
		asked := 0
		b.Early = func() bool {
			asked++
			for i := range b.Decisions {
				if b.Decisions[i].Made != want[i] {
					t.Errorf("request %d: made %v before the store is waited for, want %v", i, b.Decisions[i].Made, want[i])
				}
			}
			if len(recorded.lines) != 3 {
				t.Errorf("recorded early: %q", recorded.lines)
			}
			return may
		}
		limiter.Decide(t.Context(), b)
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		for i := range b.Decisions {
			d := &b.Decisions[i]
			if postponed := errors.Is(d.Err, engine.ErrPostponed); !d.Made || postponed != (!may && !want[i]) {
				t.Errorf("request %d: made %v, error %v", i, d.Made, d.Err)
			}
		}
		if !b.Decisions[2].Over || !b.Decisions[3].Over || b.Decisions[1].Over || !errors.Is(b.Decisions[5].Err, engine.ErrNoDescriptors) {
			t.Errorf("decided %+v", b.Decisions)
		}
		lines, taken := 8, 3
		if !may {
			lines, taken = 3, 0
		}
		if len(recorded.lines) != lines || len(store.taken) != taken {
			t.Errorf("may wait %v: recorded %q, taken %q", may, recorded.lines, store.taken)
		}
		b.Reset()
		if b.Early != nil {
			t.Error("Reset keeps Early")
		}
	}
}
