package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// generous is a Store that allows everything and allocates nothing.
type generous struct{}

func (generous) Take(_ context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		for j, hit := range charges[i].Hits {
			charges[i].Results[j] = ratelimit.Result{Allowed: true, Granted: hit.Cost, Remaining: hit.Limit.Count}
		}
	}
}

func (generous) Reset(context.Context, []string) error { return nil }

func TestDecideAllocatesNothing(t *testing.T) {
	l := engine.New(generous{}, engine.Options{})
	l.SetTable(edge(
		t,
		rules.Definition{Key: "user", Limits: perMinute(1 << 30)},
		rules.Definition{Key: "ip", Limits: []ratelimit.Limit{fixed(1<<30, time.Minute), fixed(1<<30, time.Hour), fixed(1<<30, 250*time.Millisecond)}},
		rules.Definition{Key: "plan", Value: "free-*", Limits: perMinute(10)},
		rules.Definition{Key: "replacing", RateLimit: &rules.RateLimit{Unit: "day", RequestsPerUnit: 9, Name: "a", Replaces: []string{"other"}}},
	))
	override := entry("user", "b")
	limit := fixed(7, time.Minute)
	override.Limit = &limit
	requests := []ratelimit.Request{
		asking(entry("user", "some-user")),
		asking(entry("user", "a"), entry("plan", "free-1"), override, costing(0, entry("nothing", "here"))),
		asking(entry("replacing", "x"), entry("user", "\xff|"+string(make([]byte, 500)))),
		{Domain: "other", Descriptors: []ratelimit.Descriptor{entry("a", "b")}, Cost: 1},
		{Domain: "edge"},
	}
	several := []ratelimit.Request{asking(entry("ip", "10.0.0.1"), entry("user", "c"))}
	var b engine.Batch
	for name, requests := range map[string][]ratelimit.Request{"single limits": requests, "several limits": several} {
		decide := func() {
			b.Reset()
			b.Requests = append(b.Requests, requests...)
			l.Decide(t.Context(), &b)
		}
		decide()
		if n := testing.AllocsPerRun(100, decide); n != 0 {
			t.Errorf("%s: a batch of %d requests allocates %v times", name, len(requests), n)
		}
	}
}
