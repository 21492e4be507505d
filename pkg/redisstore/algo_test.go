package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/storetest"
	"github.com/weirhq/weir/test/servers"
)

// TestScriptCountsLikeAlgo compares the script with package algo over random charges: costs of any sign, groups, several
// charges in a call, limits that change, and a clock that jumps both ways.
func TestScriptCountsLikeAlgo(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	clock := storetest.NewClock(time.Time{})
	store := open(t, redisstore.Options{Addr: server.Addr(), Now: clock.Now})
	epoch := time.Date(2026, time.February, 27, 23, 59, 58, 0, time.UTC)
	keys := []string{"r:a:1", "r:a:2", "r:a:3", "r:a:4"}
	rapid.Check(t, func(r *rapid.T) {
		server.Do("flushall")
		states := make(map[string]algo.State)
		now := epoch
		limits := rapid.SliceOfN(rapid.Custom(drawLimit), 1, 5).Draw(r, "limits")
		for range rapid.IntRange(1, 60).Draw(r, "calls") {
			now = now.Add(drawStep(r, limits))
			clock.Set(now)
			var charges []ratelimit.Charge
			for range rapid.IntRange(1, 3).Draw(r, "charges") {
				charges = append(charges, drawCharge(r, keys, limits))
			}
			store.Take(t.Context(), charges)
			for i := range charges {
				got := &charges[i]
				if got.Err != nil {
					r.Fatal(got.Err)
				}
				var before []algo.State
				for _, hit := range got.Hits {
					before = append(before, states[hit.Key])
				}
				after := slices.Clone(before)
				for j := range after {
					after[j].Log = slices.Clone(after[j].Log)
				}
				want := make([]ratelimit.Result, len(got.Hits))
				algo.Take(got.Hits, after, now.UnixMicro(), want)
				for j, hit := range got.Hits {
					states[hit.Key] = after[j]
				}
				if !slices.Equal(got.Results, want) {
					r.Fatalf("at %v\nhits   %s\nstates %+v\n got %+v\nwant %+v", now.Sub(epoch), describe(got.Hits), before, got.Results, want)
				}
			}
		}
	})
}

func describe(hits []ratelimit.Hit) (text string) {
	for _, hit := range hits {
		text += fmt.Sprintf("%s: %d of %+v (partial %t); ", hit.Key, hit.Cost, *hit.Limit, hit.Partial)
	}
	return text
}

func drawLimit(r *rapid.T) *ratelimit.Limit {
	l := &ratelimit.Limit{Algorithm: rapid.SampledFrom(ratelimit.Algorithms()).Draw(r, "algorithm")}
	l.Count = rapid.OneOf(rapid.Int64Range(0, 12), rapid.Int64Range(0, ratelimit.MaxLogCount)).Draw(r, "count")
	if l.Algorithm != ratelimit.SlidingLog && rapid.IntRange(0, 4).Draw(r, "large") == 0 {
		l.Count = rapid.Int64Range(0, ratelimit.MaxCount).Draw(r, "large count")
	}
	l.Window = time.Duration(rapid.OneOf(
		rapid.SampledFrom([]int64{1000, 1_000_000, 10_000_000, 60_000_000, 86_400_000_000}),
		rapid.Int64Range(1000, 100_000_000), rapid.Int64Range(1000, ratelimit.MaxWindow.Microseconds()),
	).Draw(r, "window")) * time.Microsecond
	switch l.Algorithm {
	case ratelimit.TokenBucket, ratelimit.LeakyBucket:
		l.Burst = rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, max(2*l.Count, 1))).Draw(r, "burst")
		l.Burst = min(l.Burst, ratelimit.MaxCount)
	case ratelimit.FixedWindow:
		l.Calendar = rapid.SampledFrom([]ratelimit.Calendar{
			ratelimit.CalendarNone, ratelimit.CalendarNone, ratelimit.CalendarMonth, ratelimit.CalendarYear,
		}).Draw(r, "calendar")
	case ratelimit.SlidingWindow, ratelimit.SlidingLog:
	}
	if err := l.Check(); err != nil {
		// A bucket too fine to be counted: a plain one instead.
		l = &ratelimit.Limit{Algorithm: l.Algorithm, Count: 10, Window: time.Second}
		if err := l.Check(); err != nil {
			r.Fatal(err)
		}
	}
	return l
}

func drawStep(r *rapid.T, limits []*ratelimit.Limit) time.Duration {
	window := rapid.SampledFrom(limits).Draw(r, "step of").Window.Microseconds()
	micros := rapid.OneOf(
		rapid.Just(int64(0)), rapid.Just(int64(1)), rapid.Just(window), rapid.Int64Range(0, window),
		rapid.Int64Range(0, max(window/10, 1)), rapid.Int64Range(-window, 0),
	).Draw(r, "step")
	// Not for longer than the calendar windows that are sent, nor to before 1970.
	return time.Duration(min(max(micros, -86_400_000_000), 20*86_400_000_000)) * time.Microsecond
}

func drawCharge(r *rapid.T, keys []string, limits []*ratelimit.Limit) ratelimit.Charge {
	n := rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4}).Draw(r, "hits")
	var c ratelimit.Charge
	for _, key := range rapid.Permutation(keys).Draw(r, "keys")[:n] {
		l := rapid.SampledFrom(limits).Draw(r, "limit")
		// A log of many hits is as slow as it is long: few costs are large.
		small := max(min(l.Capacity(), 50), 1)
		cost := rapid.OneOf(
			rapid.Int64Range(0, 3), rapid.Int64Range(-small, small+1), rapid.Int64Range(-small, small+1),
			rapid.Just(l.Capacity()), rapid.Int64Range(-ratelimit.MaxCost, ratelimit.MaxCost),
		).Draw(r, "cost")
		c.Hits = append(c.Hits, ratelimit.Hit{Key: key, Limit: l, Cost: cost, Partial: rapid.Bool().Draw(r, "partial")})
	}
	c.Results = make([]ratelimit.Result, n)
	return c
}
