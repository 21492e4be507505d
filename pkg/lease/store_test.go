package lease_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/lease"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/storetest"
	"github.com/weirhq/weir/test/servers"
)

var start = time.Date(2026, time.February, 27, 23, 59, 50, 0, time.UTC)

// counting is a store that counts what reaches it.
type counting struct {
	engine.Store
	calls, hits atomic.Int64
}

func (c *counting) Take(ctx context.Context, charges []ratelimit.Charge) {
	c.calls.Add(1)
	for i := range charges {
		for j := range charges[i].Hits {
			c.hits.Add(max(charges[i].Hits[j].Cost, 0))
		}
	}
	c.Store.Take(ctx, charges)
}

func memory(t testing.TB, now func() time.Time) engine.Store {
	t.Helper()
	store := memstore.New(memstore.Options{Now: now})
	t.Cleanup(store.Close)
	return store
}

// leased returns a store with leases before one in memory.
func leased(t testing.TB, now func() time.Time) (*lease.Store, *counting) {
	t.Helper()
	behind := &counting{Store: memory(t, now)}
	s := lease.New(behind, lease.Options{Now: now})
	s.Listening(true)
	return s, behind
}

// A store with leases keeps the contract for limits that have none, and lets everything through.
func TestContractInMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB, now func() time.Time) engine.Store {
			t.Helper()
			s, _ := leased(t, now)
			return s
		},
		IDPeriod: 5 * time.Minute,
	})
}

// leasing gives the limits of all hits a lease, where they can have one.
type leasing struct {
	*lease.Store
	limits *sync.Map // of *ratelimit.Limit
}

func (l leasing) Take(ctx context.Context, charges []ratelimit.Charge) {
	changed := slices.Clone(charges)
	for i := range changed {
		changed[i].Hits = slices.Clone(changed[i].Hits)
		for j := range changed[i].Hits {
			hit := &changed[i].Hits[j]
			if hit.Limit.Algorithm == ratelimit.TokenBucket || strings.HasPrefix(hit.Key, "refunds:") {
				continue // its capacity would be another one; what lies in a lease when something is given back is lost
			}
			found, ok := l.limits.Load(hit.Limit)
			if !ok {
				limit := *hit.Limit
				limit.Lease = ratelimit.Lease{Max: max(2, limit.Count), TTL: min(time.Second, limit.Window)}
				if limit.Check() != nil {
					limit = *hit.Limit
				}
				found, _ = l.limits.LoadOrStore(hit.Limit, &limit)
			}
			hit.Limit = found.(*ratelimit.Limit)
		}
	}
	l.Store.Take(ctx, changed)
	for i := range changed {
		changed[i].Hits = charges[i].Hits
	}
	copy(charges, changed)
}

// With leases, where limits can have them, a single process keeps the contract all the same.
func TestContractWithLeases(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB, now func() time.Time) engine.Store {
			t.Helper()
			s, _ := leased(t, now)
			return leasing{s, new(sync.Map)}
		},
		IDPeriod: 5 * time.Minute,
	})
}

func TestContractOnRedis(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	replicas := func(t testing.TB, n int, now func() time.Time) []engine.Store {
		t.Helper()
		server.Do("flushall")
		stores := make([]engine.Store, n)
		for i := range stores {
			stores[i] = onRedis(t, server, now)
		}
		return stores
	}
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB, now func() time.Time) engine.Store {
			t.Helper()
			return replicas(t, 1, now)[0]
		},
		Replicas: replicas,
		IDPeriod: redisstore.DefaultIdempotencyTTL,
	})
}

// onRedis returns a replica of those that share a Redis. now is its clock, and the counters'; nil: the clocks that there are.
func onRedis(t testing.TB, server *servers.RedisServer, now func() time.Time) *lease.Store {
	t.Helper()
	redis, err := redisstore.New(redisstore.Options{Addr: server.Addr(), Timeout: 20 * time.Second, Now: now, Channel: "ratelimit:drop"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	s := lease.New(redis, lease.Options{Now: now})
	t.Cleanup(redis.Listen(s))
	servers.Eventually(t, "announcements are heard", func() bool { return s.Stats().Listening })
	return s
}

func limit(t interface{ Fatal(...any) }, algorithm ratelimit.Algorithm, count int64, window time.Duration, lease ratelimit.Lease) *ratelimit.Limit {
	l := &ratelimit.Limit{Algorithm: algorithm, Count: count, Window: window, Lease: lease}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	return l
}

func hit(key string, l *ratelimit.Limit, cost int64) ratelimit.Hit {
	return ratelimit.Hit{Key: key, Limit: l, Cost: cost}
}

func charge(hits ...ratelimit.Hit) ratelimit.Charge {
	return ratelimit.Charge{Hits: hits, Results: make([]ratelimit.Result, len(hits))}
}

func take(t testing.TB, s engine.Store, hits ...ratelimit.Hit) ratelimit.Charge {
	t.Helper()
	charges := []ratelimit.Charge{charge(hits...)}
	s.Take(t.Context(), charges)
	if charges[0].Err != nil {
		t.Error(charges[0].Err)
	}
	return charges[0]
}

// One process with leases says of a fixed window what it would say without them, to the microsecond, as long as no lease is
// lost: whatever is charged, however it is split, and however time passes within leases.
func TestOneProcessSaysWhatTheStoreSays(t *testing.T) {
	t.Parallel()
	handedOut, ids := uint64(0), 0
	rapid.Check(t, func(r *rapid.T) {
		clock := storetest.NewClock(start)
		plain := memory(t, clock.Now)
		s, _ := leased(t, clock.Now)
		window := rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, time.Hour}).Draw(r, "window")
		l := limit(r, ratelimit.FixedWindow, rapid.Int64Range(4, 300).Draw(r, "count"), window,
			ratelimit.Lease{Max: rapid.Int64Range(2, 4).Draw(r, "max"), TTL: time.Second})
		keys := []string{"a:1", "b:1"}
		for range rapid.IntRange(1, 100).Draw(r, "calls") {
			// Nothing is lost if no lease ends with hits in it: time goes on only where none is held.
			if s.Stats().Held == 0 {
				clock.Advance(time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*window.Microseconds())).Draw(r, "step")) * time.Microsecond)
			}
			var charges, want []ratelimit.Charge
			for range rapid.IntRange(1, 6).Draw(r, "charges") {
				var hits []ratelimit.Hit
				for _, key := range rapid.Permutation(keys).Draw(r, "keys")[:rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 2}).Draw(r, "hits")] {
					hits = append(hits, ratelimit.Hit{
						Key: key, Limit: l, Partial: rapid.Bool().Draw(r, "partial"),
						Cost: rapid.SampledFrom([]int64{1, 1, 1, 1, 1, 1, 2, 2, 3, 7, 0}).Draw(r, "cost"),
					})
				}
				if len(charges) > 0 || s.Stats().Held > 0 {
					hits = hits[:1] // a group does not see what is held
				}
				charges, want = append(charges, charge(hits...)), append(want, charge(hits...))
				if len(hits) > 1 {
					break
				}
			}
			if s.Stats().Held == 0 && len(charges) == 1 && rapid.IntRange(0, 9).Draw(r, "id") == 0 {
				ids++
				charges[0].ID = fmt.Sprint("id-", ids)
				want[0].ID = charges[0].ID
			}
			s.Take(t.Context(), charges)
			plain.Take(t.Context(), want)
			for i := range want {
				got, want := &charges[i], &want[i]
				if got.Err != nil || got.At != want.At || got.Results[0].Allowed != want.Results[0].Allowed || got.Results[0].Granted != want.Results[0].Granted {
					r.Fatalf("%+v of %v\n got %+v\nwant %+v", got.Hits, l, got.Results, want.Results)
				}
				if len(charges) == 1 && !slices.Equal(got.Results, want.Results) {
					r.Fatalf("%+v of %v\n got %+v\nwant %+v", got.Hits, l, got.Results, want.Results)
				}
			}
		}
		handedOut += s.Stats().Spent
	})
	if handedOut == 0 {
		t.Error("nothing was handed out of a lease")
	}
}
