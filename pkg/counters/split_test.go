package counters_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/pkg/counters"
	"github.com/weirhq/weir/pkg/failover"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/test/servers"
)

// patient is longer than a busy machine takes.
const patient = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, options counters.Options) *counters.Store {
	t.Helper()
	store, err := counters.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func limit(t *testing.T, algorithm ratelimit.Algorithm, count int64, window time.Duration) *ratelimit.Limit {
	t.Helper()
	l := &ratelimit.Limit{Algorithm: algorithm, Count: count, Window: window}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	return l
}

func charge(hits ...ratelimit.Hit) ratelimit.Charge {
	return ratelimit.Charge{Hits: hits, Results: make([]ratelimit.Result, len(hits))}
}

// clock stands still in the middle of a window, for both servers.
func clock() time.Time { return time.Unix(1_000_000_000, 500_000_000) }

func two(t *testing.T, change ...func(*counters.Options)) (store *counters.Store, main, perSecond *servers.RedisServer) {
	t.Helper()
	main, perSecond = servers.Redis(t), servers.Redis(t)
	options := counters.Options{
		Redis:     &redisstore.Options{Addr: main.Addr(), Timeout: patient, Now: clock},
		PerSecond: &redisstore.Options{Addr: perSecond.Addr(), Timeout: patient, Now: clock},
	}
	for _, apply := range change {
		apply(&options)
	}
	return open(t, options), main, perSecond
}

// Windows of one second are counted on the server that is for them, all others on the main one, whatever they come with.
func TestSecondsAreCountedApart(t *testing.T) {
	t.Parallel()
	store, main, perSecond := two(t)
	second, minute := limit(t, ratelimit.FixedWindow, 3, time.Second), limit(t, ratelimit.FixedWindow, 5, time.Minute)
	both := func(key string, cost int64) ratelimit.Charge {
		return charge(ratelimit.Hit{Key: key + ":60", Limit: minute, Cost: cost}, ratelimit.Hit{Key: key + ":1", Limit: second, Cost: cost})
	}
	charges := []ratelimit.Charge{
		charge(ratelimit.Hit{Key: "a:1", Limit: second, Cost: 1}), charge(ratelimit.Hit{Key: "a:60", Limit: minute, Cost: 1}),
		both("a", 1), charge(ratelimit.Hit{Key: "a:1", Limit: second, Cost: 1}), both("a", 1),
	}
	store.Take(t.Context(), charges)
	for i, want := range []string{"[{true 2}]", "[{true 4}]", "[{true 3} {true 1}]", "[{true 0}]", "[{true 3} {false 0}]"} {
		if charges[i].Err != nil {
			t.Fatal(charges[i].Err)
		}
		if got := brief(charges[i].Results); got != want {
			t.Errorf("charge %d: %s, want %s", i, got, want)
		}
	}
	if m, s := main.Do("EXISTS", "a:1"), perSecond.Do("EXISTS", "a:60"); m != int64(0) || s != int64(0) {
		t.Errorf("keys of the other kind: %v and %v", m, s)
	}
	if m, s := main.Do("EXISTS", "a:60"), perSecond.Do("EXISTS", "a:1"); m != int64(1) || s != int64(1) {
		t.Errorf("keys of the own kind: %v and %v", m, s)
	}
	if err := store.Reset(t.Context(), []string{"a:1", "a:60"}); err != nil {
		t.Fatal(err)
	}
	charges = []ratelimit.Charge{both("a", 3)}
	if store.Take(t.Context(), charges); brief(charges[0].Results) != "[{true 2} {true 0}]" {
		t.Errorf("after a reset: %s", brief(charges[0].Results))
	}
}

// brief shows what of results does not depend on time.
func brief(results []ratelimit.Result) string {
	type short struct {
		Allowed   bool
		Remaining int64
	}
	shown := make([]short, len(results))
	for i := range results {
		shown[i] = short{results[i].Allowed, results[i].Remaining}
	}
	return fmt.Sprint(shown)
}

// However charges of one, the other and both kinds come, no limit lets through more than it allows.
func TestNeverAboveTheLimit(t *testing.T) {
	t.Parallel()
	store, _, _ := two(t, func(o *counters.Options) { o.DenyCache, o.Leases = 1000, true })
	const each = 40
	second, minute := limit(t, ratelimit.FixedWindow, each, time.Second), limit(t, ratelimit.FixedWindow, each, time.Minute)
	hits := []ratelimit.Hit{{Key: "n:1", Limit: second, Cost: 1}, {Key: "n:60", Limit: minute, Cost: 1}}
	var seconds, minutes atomic.Int64
	var group sync.WaitGroup
	for caller := range 50 {
		group.Go(func() {
			for i := range 6 {
				kind := (caller + i) % 3
				c := []ratelimit.Charge{charge(hits...)}
				if kind < 2 {
					c[0] = charge(hits[kind])
				}
				if store.Take(t.Context(), c); c[0].Err != nil || c[0].Degraded != ratelimit.FailureDefault {
					t.Errorf("not decided: %v", c[0].Err)
					return
				}
				for j := range c[0].Results {
					if !c[0].Results[j].Allowed {
						return
					}
				}
				if kind != 1 {
					seconds.Add(1)
				}
				if kind != 0 {
					minutes.Add(1)
				}
			}
		})
	}
	group.Wait()
	if s, m := seconds.Load(), minutes.Load(); s > each || m > each || s == 0 || m == 0 {
		t.Errorf("%d in the second, %d in the minute, at most %d of each", s, m, each)
	}
}

// A charge with an ID that spans both servers is charged once.
func TestOnceOnBoth(t *testing.T) {
	t.Parallel()
	store, _, _ := two(t)
	second, minute := limit(t, ratelimit.FixedWindow, 10, time.Second), limit(t, ratelimit.FixedWindow, 10, time.Minute)
	for range 3 {
		c := []ratelimit.Charge{charge(ratelimit.Hit{Key: "id:1", Limit: second, Cost: 2}, ratelimit.Hit{Key: "id:60", Limit: minute, Cost: 2})}
		c[0].ID = "once"
		if store.Take(t.Context(), c); c[0].Err != nil || brief(c[0].Results) != "[{true 8} {true 8}]" || c[0].At == 0 {
			t.Fatalf("%s at %d, %v", brief(c[0].Results), c[0].At, c[0].Err)
		}
	}
}

// A cancelled charge is counted on neither server, and the breakers take no notice.
func TestCancelledOnBoth(t *testing.T) {
	t.Parallel()
	store, _, _ := two(t, func(o *counters.Options) {
		o.Failures, o.OnBreaker = 1, func(server string, state failover.State) { t.Errorf("the breaker of %s is %v", server, state) }
	})
	second, minute := limit(t, ratelimit.FixedWindow, 10, time.Second), limit(t, ratelimit.FixedWindow, 10, time.Minute)
	hits := func(cost int64) (both, main, perSecond ratelimit.Charge) {
		a, b := ratelimit.Hit{Key: "gone:1", Limit: second, Cost: cost}, ratelimit.Hit{Key: "gone:60", Limit: minute, Cost: cost}
		return charge(a, b), charge(b), charge(a)
	}
	both, main, perSecond := hits(1)
	cancelled := []ratelimit.Charge{both, main, perSecond}
	for i := range cancelled {
		cancelled[i].Cancelled = new(atomic.Bool)
		cancelled[i].Cancelled.Store(true)
	}
	for range 3 {
		store.Take(t.Context(), cancelled)
		for i := range cancelled {
			if err := cancelled[i].Err; !errors.Is(err, ratelimit.ErrCancelled) {
				t.Errorf("charge %d: error %v", i, err)
			}
		}
	}
	look, _, _ := hits(0)
	c := []ratelimit.Charge{look}
	if store.Take(t.Context(), c); c[0].Err != nil || brief(c[0].Results) != "[{true 10} {true 10}]" {
		t.Errorf("%s are left, error %v", brief(c[0].Results), c[0].Err)
	}
}

// One server that is away does not change what the other one decides, and has a breaker of its own.
func TestOneServerAway(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	states := make(map[string]failover.State)
	store, _, perSecond := two(t, func(o *counters.Options) {
		o.PerSecond.Timeout, o.Failures, o.OnFailure = 100*time.Millisecond, 2, ratelimit.FailClosed
		o.OnBreaker = func(server string, state failover.State) {
			mu.Lock()
			defer mu.Unlock()
			states[server] = state
		}
	})
	perSecond.Kill()
	second, minute := limit(t, ratelimit.FixedWindow, 10, time.Second), limit(t, ratelimit.FixedWindow, 1000, time.Minute)
	servers.Eventually(t, "the breaker of one opens", func() bool {
		c := []ratelimit.Charge{charge(ratelimit.Hit{Key: "away:1", Limit: second, Cost: 1}), charge(ratelimit.Hit{Key: "away:60", Limit: minute, Cost: 1})}
		store.Take(t.Context(), c)
		if c[0].Degraded != ratelimit.FailClosed || c[0].Results[0].Allowed {
			t.Errorf("seconds: %+v", c[0])
		}
		if c[1].Degraded != ratelimit.FailureDefault || !c[1].Results[0].Allowed || c[1].Err != nil {
			t.Errorf("minutes: %+v", c[1])
		}
		mu.Lock()
		defer mu.Unlock()
		_, other := states[counters.NameRedis]
		return states[counters.NamePerSecond] != failover.Closed && !other
	})
	if store.Servers[0].Name != counters.NameRedis || store.Servers[0].Ping(t.Context()) != nil {
		t.Error("the main server does not answer")
	}
	if store.Servers[1].Name != counters.NamePerSecond || store.Servers[1].Ping(t.Context()) == nil {
		t.Error("the one that is away answers")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]counters.Options{
		"a second Redis without a first": {PerSecond: &redisstore.Options{Addr: "127.0.0.1:1"}},
		"no address":                     {Redis: new(redisstore.Options)},
		"no second address":              {Redis: &redisstore.Options{Addr: "127.0.0.1:1"}, PerSecond: new(redisstore.Options)},
		"fraction":                       {Redis: &redisstore.Options{Addr: "127.0.0.1:1"}, LocalFraction: 2},
	} {
		if _, err := counters.Open(options); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	store := open(t, counters.Options{})
	c := []ratelimit.Charge{charge(ratelimit.Hit{Key: "m:1", Limit: limit(t, ratelimit.FixedWindow, 1, time.Hour), Cost: 1})}
	if store.Take(t.Context(), c); !c[0].Results[0].Allowed || store.Memory == nil || len(store.Servers) > 0 {
		t.Errorf("in memory: %+v", c[0])
	}
}
