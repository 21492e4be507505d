package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// limit returns a checked limit of count per window, with a burst as large as the count if there is one.
func limit(t testing.TB, algorithm ratelimit.Algorithm, count int64, window time.Duration) *ratelimit.Limit {
	t.Helper()
	l := &ratelimit.Limit{Algorithm: algorithm, Count: count, Window: window}
	if algorithm == ratelimit.LeakyBucket {
		l.Burst = count
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	return l
}

func charge(hits ...ratelimit.Hit) ratelimit.Charge {
	return ratelimit.Charge{Hits: hits, Results: make([]ratelimit.Result, len(hits))}
}

// take charges one hit and returns its result.
func take(ctx context.Context, t testing.TB, store engine.Store, hit ratelimit.Hit) ratelimit.Result {
	t.Helper()
	charges := []ratelimit.Charge{charge(hit)}
	store.Take(ctx, charges)
	if charges[0].Err != nil {
		t.Errorf("key %q: %v", hit.Key, charges[0].Err)
	}
	return charges[0].Results[0]
}

// remaining looks at a counter.
func remaining(t testing.TB, store engine.Store, key string, l *ratelimit.Limit) int64 {
	t.Helper()
	return take(t.Context(), t, store, ratelimit.Hit{Key: key, Limit: l}).Remaining
}
