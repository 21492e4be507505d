package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/storetest"
	"github.com/weirhq/weir/test/servers"
)

// Charges that go together are told what each would have been told alone, one after the other, merged or not.
func TestBatchCountsLikeAlgo(t *testing.T) {
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
		limits := rapid.SliceOfN(rapid.Custom(drawLimit), 1, 2).Draw(r, "limits")
		for range rapid.IntRange(1, 6).Draw(r, "calls") {
			now = now.Add(drawStep(r, limits))
			clock.Set(now)
			var charges []ratelimit.Charge
			for range rapid.IntRange(1, 8).Draw(r, "runs") {
				c := drawCharge(r, keys, limits)
				if len(c.Hits) == 1 && rapid.Bool().Draw(r, "small") {
					c.Hits[0].Cost = rapid.Int64Range(1, max(1, min(c.Hits[0].Limit.Capacity()/3, 50))).Draw(r, "small cost")
				}
				for range rapid.IntRange(1, 12).Draw(r, "times") {
					charges = append(charges, ratelimit.Charge{Hits: c.Hits, Results: make([]ratelimit.Result, len(c.Hits))})
				}
				if rapid.Bool().Draw(r, "mixed") {
					charges = rapid.Permutation(charges).Draw(r, "order")
				}
			}
			store.Take(t.Context(), charges)
			for i := range charges {
				got := &charges[i]
				if got.Err != nil {
					r.Fatal(got.Err)
				}
				var after []algo.State
				for _, hit := range got.Hits {
					state := states[hit.Key]
					state.Log = slices.Clone(state.Log)
					after = append(after, state)
				}
				want := make([]ratelimit.Result, len(got.Hits))
				algo.Take(got.Hits, after, now.UnixMicro(), want)
				if !slices.Equal(got.Results, want) {
					r.Fatalf("charge %d of %d: %s\n got %+v\nwant %+v", i, len(charges), describe(got.Hits), got.Results, want)
				}
				for j, hit := range got.Hits {
					states[hit.Key] = after[j]
				}
			}
		}
	})
}

// What waits for a server goes together when it answers again.
func TestCallersShareRoundTrips(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t)
	for name, options := range map[string]redisstore.Options{
		"server":  {Addr: servers.Redis(t).Addr()},
		"cluster": {Cluster: cluster.Addrs()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var trips atomic.Int64
			options.Observe = func(time.Duration, error) { trips.Add(1) }
			store := open(t, options)
			l := limit(t, ratelimit.TokenBucket, 100, time.Hour)
			var granted atomic.Int64
			crowd(callers, func(int) {
				for range 20 {
					c := take(t.Context(), store, one("shared:3600", l))
					if c.Err != nil {
						t.Error(c.Err)
					}
					granted.Add(c.Results[0].Granted)
				}
			})
			// The clock runs on: a few more flow back while they all come.
			if n := granted.Load(); n < 100 || n > 110 {
				t.Errorf("%d granted of 100", n)
			}
			if n := trips.Load(); n > callers*20/4 {
				t.Errorf("%d round trips for %d calls", n, callers*20)
			}
		})
	}
}

// Each caller returns by its own deadline or when it is cancelled, and does with its memory what it likes, while the others
// wait on and get their results.
func TestImpatientCallers(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store := open(t, redisstore.Options{Addr: server.Addr()})
	l := limit(t, ratelimit.FixedWindow, 1_000_000, time.Hour)
	if c := take(t.Context(), store, one("patient:3600", l)); c.Err != nil {
		t.Fatal(c.Err)
	}
	server.Pause()
	var patient, impatient sync.WaitGroup
	for i := range 100 {
		patient.Go(func() {
			if c := take(t.Context(), store, one("patient:3600", l)); c.Err != nil || c.Results[0].Granted != 1 {
				t.Errorf("a patient caller: %+v, %v", c.Results[0], c.Err)
			}
		})
		impatient.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			key := []byte("impatient:3600")
			c := []ratelimit.Charge{{
				Hits: []ratelimit.Hit{one(unsafe.String(&key[0], len(key)), l)}, Results: make([]ratelimit.Result, 1),
			}}
			if i%2 == 0 {
				// Cancelled, without a deadline of its own. It may be the one that runs a round trip, and waits for its end then.
				stop := time.AfterFunc(deadline/2, cancel)
				defer stop.Stop()
			}
			began := time.Now()
			store.Take(ctx, c)
			if took := time.Since(began); took > deadline+lateness || !errors.Is(c[0].Err, redisstore.ErrUnavailable) {
				t.Errorf("an impatient caller: %v after %v", c[0].Err, took)
			}
			for j := range key {
				key[j] = '!'
			}
			c[0] = ratelimit.Charge{}
		})
	}
	impatient.Wait()
	server.Resume()
	patient.Wait()
	if c := take(t.Context(), store, ratelimit.Hit{Key: "patient:3600", Limit: l}); c.Err != nil || l.Count-c.Results[0].Remaining != 101 {
		t.Errorf("%d hits of 101 patient callers were charged (%v)", l.Count-c.Results[0].Remaining, c.Err)
	}
	if keys, err := server.Client().Keys(t.Context(), "*!*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("what callers wrote after they had left was sent: %q, %v", keys, err)
	}
}

// The server stops and goes on again and again while callers come without a pause. What was granted was charged, and what
// failed may have been. After a crash they go on.
func TestUnderFire(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store := open(t, redisstore.Options{Addr: server.Addr(), Timeout: 5 * time.Second})
	l := limit(t, ratelimit.FixedWindow, 1_000_000, 24*time.Hour)
	fire := func(during func(granted *atomic.Int64)) (granted, failed int64) {
		var yes, no atomic.Int64
		stop := make(chan struct{})
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
					c := take(ctx, store, one("fire:86400", l), one(fmt.Sprintf("fire-%d:86400", i), l))
					cancel()
					switch {
					case c.Err == nil:
						yes.Add(c.Results[0].Granted)
					case errors.Is(c.Err, redisstore.ErrUnavailable):
						no.Add(1)
					default:
						t.Error(c.Err)
					}
				}
			})
		}
		during(&yes)
		close(stop)
		group.Wait()
		return yes.Load(), no.Load()
	}
	granted, failed := fire(func(granted *atomic.Int64) {
		for range 3 {
			before := granted.Load()
			servers.Eventually(t, "calls succeed", func() bool { return granted.Load() > before+100 })
			server.Pause()
			time.Sleep(60 * time.Millisecond)
			server.Resume()
		}
	})
	c := take(t.Context(), store, ratelimit.Hit{Key: "fire:86400", Limit: l})
	if used := l.Count - c.Results[0].Remaining; c.Err != nil || failed == 0 || used < granted || used > granted+failed {
		t.Errorf("%d granted, %d failed, %d charged (%v)", granted, failed, used, c.Err)
	}
	fire(func(granted *atomic.Int64) {
		servers.Eventually(t, "calls succeed", func() bool { return granted.Load() > 100 })
		server.Kill()
		server.Restart()
		before := granted.Load()
		servers.Eventually(t, "calls succeed after a crash", func() bool { return granted.Load() > before+100 })
	})
}
