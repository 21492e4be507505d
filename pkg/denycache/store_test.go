package denycache_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/denycache"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/storetest"
	"github.com/weirhq/weir/test/servers"
)

var start = time.Date(2026, time.February, 27, 23, 59, 50, 0, time.UTC)

// counting is a store that counts how many charges reach it.
type counting struct {
	engine.Store
	taken atomic.Int64
}

func (c *counting) Take(ctx context.Context, charges []ratelimit.Charge) {
	c.taken.Add(int64(len(charges)))
	c.Store.Take(ctx, charges)
}

func memory(t testing.TB, now func() time.Time) engine.Store {
	t.Helper()
	store := memstore.New(memstore.Options{Now: now})
	t.Cleanup(store.Close)
	return store
}

// cached returns a cache that answers, before a store in memory.
func cached(t testing.TB, now func() time.Time) (*denycache.Store, *counting) {
	t.Helper()
	behind := &counting{Store: memory(t, now)}
	s := denycache.New(behind, denycache.Options{Now: now})
	s.Listening(true)
	return s, behind
}

func TestContractInMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB, now func() time.Time) engine.Store {
			t.Helper()
			s, _ := cached(t, now)
			return s
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
			redis, err := redisstore.New(redisstore.Options{Addr: server.Addr(), Timeout: 20 * time.Second, Now: now, Channel: "ratelimit:drop"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = redis.Close() })
			s := denycache.New(redis, denycache.Options{Now: now})
			t.Cleanup(redis.Listen(s))
			servers.Eventually(t, "announcements are heard", func() bool { return s.Stats().Listening })
			stores[i] = s
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

func limit(t interface{ Fatal(...any) }, algorithm ratelimit.Algorithm, count, burst int64, window time.Duration) *ratelimit.Limit {
	l := &ratelimit.Limit{Algorithm: algorithm, Count: count, Window: window}
	if algorithm == ratelimit.TokenBucket || algorithm == ratelimit.LeakyBucket {
		l.Burst = burst
	}
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

// A store with the cache says what the same store says without it, to the microsecond, whatever is charged, given back, reset
// or changed, and however time passes.
func TestSaysWhatTheStoreSays(t *testing.T) {
	t.Parallel()
	answered, ids := uint64(0), 0
	rapid.Check(t, func(r *rapid.T) {
		clock := storetest.NewClock(start)
		plain := memory(t, clock.Now)
		s, _ := cached(t, clock.Now)
		var limits []*ratelimit.Limit
		for range rapid.IntRange(1, 2).Draw(r, "limits") {
			limits = append(limits, limit(r, rapid.SampledFrom(ratelimit.Algorithms()).Draw(r, "algorithm"),
				rapid.Int64Range(0, 6).Draw(r, "count"), rapid.Int64Range(1, 6).Draw(r, "burst"),
				rapid.SampledFrom([]time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, 3 * time.Second, time.Hour}).Draw(r, "window")))
		}
		keys := []string{"a:1", "a:2", "b:1"}
		for range rapid.IntRange(1, 60).Draw(r, "calls") {
			window := rapid.SampledFrom(limits).Draw(r, "step of").Window.Microseconds()
			clock.Advance(time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 3), rapid.Int64Range(0, window/4+1),
				rapid.Int64Range(0, 2*window)).Draw(r, "step")) * time.Microsecond)
			if rapid.IntRange(0, 19).Draw(r, "reset") == 0 {
				key := rapid.SampledFrom(keys).Draw(r, "reset key")
				if plain.Reset(t.Context(), []string{key}) != nil || s.Reset(t.Context(), []string{key}) != nil {
					r.Fatal("a reset failed")
				}
			}
			var charges, want []ratelimit.Charge
			for range rapid.IntRange(1, 3).Draw(r, "charges") {
				var hits []ratelimit.Hit
				for _, key := range rapid.Permutation(keys).Draw(r, "keys")[:rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(r, "hits")] {
					hits = append(hits, ratelimit.Hit{
						Key: key, Limit: rapid.SampledFrom(limits).Draw(r, "limit"), Partial: rapid.Bool().Draw(r, "partial"),
						Cost: rapid.SampledFrom([]int64{1, 1, 1, 1, 2, 2, 3, 7, 0, -1}).Draw(r, "cost"),
					})
				}
				charges, want = append(charges, charge(hits...)), append(want, charge(hits...))
				if rapid.IntRange(0, 9).Draw(r, "id") == 0 {
					ids++
					last := len(want) - 1
					charges[last].ID = fmt.Sprint("id-", ids)
					want[last].ID = charges[last].ID
				}
			}
			before := s.Stats().Denied
			s.Take(t.Context(), charges)
			plain.Take(t.Context(), want)
			for i := range want {
				if charges[i].Err != nil || charges[i].At != want[i].At || !slices.Equal(charges[i].Results, want[i].Results) {
					r.Fatalf("%+v of %v\n got %+v\nwant %+v (%d answered here)", charges[i].Hits, charges[i].Hits[0].Limit,
						charges[i].Results, want[i].Results, s.Stats().Denied-before)
				}
			}
			answered += s.Stats().Denied - before
		}
	})
	if answered == 0 {
		t.Error("nothing was answered by the cache")
	}
}

// A denied client costs the store nothing until it could be allowed, and is allowed at that instant.
func TestDeniedUntilTheInstant(t *testing.T) {
	t.Parallel()
	for _, algorithm := range ratelimit.Algorithms() {
		clock := storetest.NewClock(start)
		s, behind := cached(t, clock.Now)
		l := limit(t, algorithm, 5, 5, 500*time.Millisecond)
		for take(t, s, hit("k:1", l, 1)).Results[0].Allowed {
		}
		wait := take(t, s, hit("k:1", l, 1)).Results[0].RetryAfter
		before := behind.taken.Load()
		for left := wait; left > 0; left -= time.Millisecond {
			if r := take(t, s, hit("k:1", l, 1)).Results[0]; r.Allowed || r.RetryAfter != left {
				t.Fatalf("%v: %+v, %v before it is ready", algorithm, r, left)
			}
			clock.Advance(min(left, time.Millisecond))
		}
		if n := behind.taken.Load() - before; n != 0 {
			t.Errorf("%v: the store was asked %d times", algorithm, n)
		}
		if r := take(t, s, hit("k:1", l, 1)).Results[0]; !r.Allowed {
			t.Errorf("%v: %+v although it is ready", algorithm, r)
		}
	}
}

// No answer is older than MaxAge.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s, behind := cached(t, clock.Now)
	l := limit(t, ratelimit.FixedWindow, 1, 0, 24*time.Hour)
	take(t, s, hit("k:1", l, 1))
	take(t, s, hit("k:1", l, 1))
	for _, c := range []struct {
		step time.Duration
		asks int64
	}{{0, 0}, {denycache.DefaultMaxAge - time.Microsecond, 0}, {time.Microsecond, 1}, {-time.Hour, 1}} {
		clock.Advance(c.step)
		before := behind.taken.Load()
		take(t, s, hit("k:1", l, 1))
		if asked := behind.taken.Load() - before; asked != c.asks {
			t.Errorf("after %v the store was asked %d times, want %d", c.step, asked, c.asks)
		}
	}
}

// slow is a store whose answers wait until they are let go, after they were decided.
type slow struct {
	engine.Store
	decided, release chan struct{}
}

func (s *slow) Take(ctx context.Context, charges []ratelimit.Charge) {
	s.Store.Take(ctx, charges)
	s.decided <- struct{}{}
	<-s.release
}

// An answer from before a refund is not remembered, although it arrives after it.
func TestAnswersFromBeforeARefund(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	l := limit(t, ratelimit.FixedWindow, 1, 0, time.Hour)
	for name, change := range map[string]func(s *denycache.Store){
		"drop":      func(s *denycache.Store) { s.Drop("k:1") },
		"listening": func(s *denycache.Store) { s.Listening(true) },
	} {
		behind := &slow{memory(t, clock.Now), make(chan struct{}, 1), make(chan struct{}, 1)}
		s := denycache.New(behind, denycache.Options{Now: clock.Now})
		s.Listening(true)
		behind.release <- struct{}{}
		take(t, s, hit("k:1", l, 1))
		<-behind.decided
		done := make(chan ratelimit.Charge)
		go func() { done <- take(t, s, hit("k:1", l, 1)) }()
		<-behind.decided // denied, and on its way
		behind.Store.Take(t.Context(), []ratelimit.Charge{charge(hit("k:1", l, -1))})
		change(s)
		behind.release <- struct{}{}
		if c := <-done; c.Results[0].Allowed {
			t.Fatalf("%s: %+v", name, c.Results[0])
		}
		behind.release <- struct{}{}
		if r := take(t, s, hit("k:1", l, 1)).Results[0]; !r.Allowed {
			t.Errorf("%s: denied after what was given back: %+v", name, r)
		}
	}
}

// Nothing is answered by the cache while announcements are not heard, nor what another store decided in its stead.
func TestNotAnswered(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	l := limit(t, ratelimit.FixedWindow, 1, 0, time.Hour)
	s, behind := cached(t, clock.Now)
	take(t, s, hit("k:1", l, 1))
	take(t, s, hit("k:1", l, 1))
	asks := func(want int64, when string, c ratelimit.Charge) {
		t.Helper()
		before := behind.taken.Load()
		s.Take(t.Context(), []ratelimit.Charge{c})
		if asked := behind.taken.Load() - before; asked != want {
			t.Errorf("%s: the store was asked %d times, want %d", when, asked, want)
		}
	}
	asks(0, "the same hit", charge(hit("k:1", l, 1)))
	asks(1, "a look", charge(hit("k:1", l, 0)))
	asks(1, "another cost", charge(hit("k:1", l, 2)))
	asks(1, "a group", charge(hit("k:1", l, 1), hit("k:2", l, 1)))
	id := charge(hit("k:1", l, 1))
	id.ID = "id"
	asks(1, "an ID", id)
	same := *l
	asks(1, "another limit", charge(hit("k:1", &same, 1)))
	s.Listening(false)
	asks(1, "nothing is heard", charge(hit("k:1", l, 1)))
	asks(1, "nothing is heard", charge(hit("k:1", l, 1)))
	s.Listening(true)
	asks(1, "heard again", charge(hit("k:1", l, 1)))
	asks(0, "heard again", charge(hit("k:1", l, 1)))

	degraded := degrading{behind}
	s = denycache.New(degraded, denycache.Options{Now: clock.Now})
	s.Listening(true)
	asks(1, "degraded", charge(hit("k:1", l, 1)))
	asks(1, "degraded", charge(hit("k:1", l, 1)))
}

type degrading struct{ *counting }

func (d degrading) Take(ctx context.Context, charges []ratelimit.Charge) {
	d.counting.Take(ctx, charges)
	for i := range charges {
		charges[i].Degraded = ratelimit.FailLocal
	}
}

// The cache is bounded, keeps no memory of its callers, and of keys too many forgets some.
func TestBounded(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s := denycache.New(memory(t, clock.Now), denycache.Options{Now: clock.Now, Entries: 1000})
	s.Listening(true)
	l := limit(t, ratelimit.FixedWindow, 0, 0, time.Hour)
	key := make([]byte, 0, 32)
	for i := range 10_000 {
		key = fmt.Appendf(key[:0], "bounded-%d:1", i)
		take(t, s, hit(string(key), l, 1))
	}
	if n := s.Stats().Entries; n > 1000 || n < 900 {
		t.Errorf("%d entries of 1000", n)
	}
	if s.Listening(true); s.Stats().Entries != 0 {
		t.Errorf("%d entries after all was forgotten", s.Stats().Entries)
	}
}

// What one process gives back or resets is allowed on the others as soon as they have heard of it; who hears nothing answers
// nothing.
func TestReplicas(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t)
	server := servers.Redis(t)
	for name, options := range map[string]redisstore.Options{
		"server":  {Addr: server.Addr()},
		"cluster": {Cluster: cluster.Addrs()},
	} {
		t.Run(name, func(t *testing.T) {
			options.Timeout, options.Channel = 20*time.Second, "ratelimit:drop"
			var replicas [2]*denycache.Store
			for i := range replicas {
				redis, err := redisstore.New(options)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = redis.Close() })
				replicas[i] = denycache.New(redis, denycache.Options{MaxAge: time.Hour})
				t.Cleanup(redis.Listen(replicas[i]))
				servers.Eventually(t, "announcements are heard", func() bool { return replicas[i].Stats().Listening })
			}
			l := limit(t, ratelimit.FixedWindow, 3, 0, 24*time.Hour)
			for _, key := range []string{"plain:60", "br{a}ce:60", "%0123456789abcdef:60", "no colon", strings.Repeat("x", 3000)} {
				empty := func() {
					t.Helper()
					for _, s := range replicas {
						for take(t, s, hit(key, l, 1)).Results[0].Allowed {
						}
						if before := s.Stats().Denied; take(t, s, hit(key, l, 1)).Results[0].Allowed || s.Stats().Denied == before {
							t.Fatalf("%q: not answered by the cache", key)
						}
					}
				}
				heard := func() {
					t.Helper()
					servers.Eventually(t, "the other process allows it", func() bool { return take(t, replicas[1], hit(key, l, 1)).Results[0].Allowed })
				}
				empty()
				take(t, replicas[0], hit(key, l, -1))
				heard()
				empty()
				if err := replicas[0].Reset(t.Context(), []string{key}); err != nil {
					t.Fatal(err)
				}
				heard()
			}
			if name != "server" {
				return
			}
			server.Pause()
			servers.Eventually(t, "nothing is heard", func() bool { return !replicas[0].Stats().Listening && replicas[0].Stats().Entries == 0 })
			server.Resume()
			servers.Eventually(t, "announcements are heard again", func() bool { return replicas[0].Stats().Listening })
		})
	}
}
