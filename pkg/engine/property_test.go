package engine_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// Whatever is asked, in whatever order: the requests that go on never cost more than an enforced limit, and every decision
// fits its statuses.
func TestNeverMoreThanTheLimit(t *testing.T) {
	const capacity = 10
	definitions := []rules.Definition{
		{Key: "plain", Limits: perMinute(capacity)},
		{Key: "several", Limits: []ratelimit.Limit{fixed(capacity, time.Minute), fixed(capacity+5, time.Hour), fixed(capacity+9, time.Hour)}},
		{Key: "quota", Limits: perMinute(capacity), QuotaMode: true},
		{Key: "shadow", Limits: perMinute(3), Shadow: true},
		{Key: "foe", Action: ratelimit.ActionDeny},
		{Key: "friend", Action: ratelimit.ActionAllow},
		{Key: "replacing", RateLimit: &rules.RateLimit{Unit: "minute", RequestsPerUnit: capacity, Name: "replacing", Replaces: []string{"replaced"}}},
		{Key: "replaced", RateLimit: &rules.RateLimit{Unit: "minute", RequestsPerUnit: capacity, Name: "replaced"}},
	}
	table := edge(t, definitions...)
	rapid.Check(t, func(t *rapid.T) {
		l := engine.New(&ledger{}, engine.Options{})
		l.SetTable(table)
		admitted := map[string]int64{}
		var b engine.Batch
		for range rapid.IntRange(1, 10).Draw(t, "batches") {
			b.Reset()
			b.Peek = rapid.IntRange(0, 9).Draw(t, "peek") == 0
			for range rapid.IntRange(1, 4).Draw(t, "requests") {
				b.Requests = append(b.Requests, drawRequest(t, definitions))
			}
			l.Decide(t.Context(), &b)
			for i := range b.Requests {
				check(t, &b.Requests[i], &b.Decisions[i])
				if b.Decisions[i].Over || b.Peek {
					continue
				}
				for j, s := range b.Decisions[i].Statuses {
					if s.Limit != nil && s.Rule != nil && !s.Rule.Shadow && !s.Rule.QuotaMode {
						admitted[fmt.Sprint(b.Requests[i].Descriptors[j].Entries)] += s.Cost
					}
				}
			}
		}
		for descriptor, cost := range admitted {
			if cost > capacity {
				t.Fatalf("%s: %d were let pass at a limit of %d", descriptor, cost, capacity)
			}
		}
	})
}

func drawRequest(t *rapid.T, definitions []rules.Definition) ratelimit.Request {
	request := ratelimit.Request{Domain: "edge", Cost: rapid.Int64Range(0, 4).Draw(t, "cost"), Atomic: rapid.Bool().Draw(t, "atomic")}
	for range rapid.IntRange(1, 5).Draw(t, "descriptors") {
		key := rapid.SampledFrom(definitions).Draw(t, "rule").Key
		if rapid.IntRange(0, 9).Draw(t, "unmatched") == 0 {
			key = "unmatched"
		}
		d := entry(key, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "value"))
		if rapid.Bool().Draw(t, "own cost") {
			d = costing(rapid.Int64Range(0, 12).Draw(t, "descriptor's cost"), d)
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

// check holds a decision to what its documentation says.
func check(t *rapid.T, request *ratelimit.Request, decision *engine.Decision) {
	if decision.Err != nil || len(decision.Statuses) != len(request.Descriptors) {
		t.Fatalf("%d statuses for %d descriptors, error %v", len(decision.Statuses), len(request.Descriptors), decision.Err)
	}
	hard, quota, overQuota := false, 0, 0
	granted, asked := int64(0), int64(0)
	for i, s := range decision.Statuses {
		switch {
		case s.Over && s.Remaining != 0:
			t.Fatalf("status %d is over and has %d left", i, s.Remaining)
		case s.Over != (s.Outcome == ratelimit.OutcomeDenied):
			t.Fatalf("status %d is %v and over is %v", i, s.Outcome, s.Over)
		case (s.Limit == nil) != (len(s.Limits) == 0):
			t.Fatalf("status %d has %d limits, the tightest is %v", i, len(s.Limits), s.Limit)
		case s.Granted < 0 || s.Granted > s.Cost:
			t.Fatalf("status %d was granted %d of %d", i, s.Granted, s.Cost)
		}
		for _, l := range s.Limits {
			if !s.Over && !s.Rule.Shadow && l.Result.Remaining < s.Remaining {
				t.Fatalf("status %d shows %d left, a limit has %d", i, s.Remaining, l.Result.Remaining)
			}
		}
		inQuota := s.Rule != nil && s.Rule.QuotaMode && !s.Rule.Shadow
		switch {
		case inQuota:
			quota++
			if s.Over {
				overQuota++
			}
		case s.Over:
			hard = true
		}
		if s.Limit != nil && !inQuota && !s.Rule.Shadow {
			granted, asked = granted+s.Granted, asked+s.Cost
		}
	}
	if over := hard || quota > 0 && quota == overQuota; over != decision.Over {
		t.Fatalf("the request is over: %v, by its statuses: %v", decision.Over, over)
	}
	if request.Atomic && granted != 0 && (hard || granted != asked) {
		t.Fatalf("an atomic request was charged %d of %d, over: %v", granted, asked, hard)
	}
}
