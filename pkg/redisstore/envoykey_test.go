package redisstore_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/test/servers"
)

func envoyLimit(t testing.TB, count int64, window time.Duration) *ratelimit.Limit {
	t.Helper()
	l := &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: count, Window: window, EnvoyKey: true}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	return l
}

// clock stands still until it is moved.
type clock struct{ now atomic.Pointer[time.Time] }

func newClock(at time.Time) *clock {
	c := &clock{}
	c.set(at)
	return c
}
func (c *clock) set(at time.Time) { c.now.Store(&at) }
func (c *clock) get() time.Time   { return *c.now.Load() }

func TestEnvoyKeysHoldTheCount(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	at := time.Unix(1_700_000_040, 0).Truncate(time.Minute)
	now := newClock(at.Add(40 * time.Second))
	store := open(t, redisstore.Options{Addr: server.Addr(), Now: now.get, EnvoyJitter: 300 * time.Second})
	l := envoyLimit(t, 3, time.Minute)
	hit := ratelimit.Hit{Key: "edge_user_ann_", Limit: l, Cost: 2, Partial: true}

	steps := []struct {
		cost    int64
		want    ratelimit.Result
		counted string
	}{
		{2, ratelimit.Result{Allowed: true, Granted: 2, Remaining: 1}, "2"},
		{2, ratelimit.Result{Granted: 1, RetryAfter: 20 * time.Second}, "4"},
		{1, ratelimit.Result{RetryAfter: 20 * time.Second}, "5"},
		{0, ratelimit.Result{RetryAfter: 20 * time.Second}, "5"},
		{-2, ratelimit.Result{Allowed: true, Granted: -2}, "3"},
		{0, ratelimit.Result{Allowed: true}, "3"}, // at the limit a look may pass
		{-1 << 40, ratelimit.Result{Allowed: true, Granted: -3, Remaining: 3}, "0"},
		{1, ratelimit.Result{Allowed: true, Granted: 1, Remaining: 2}, "1"},
	}
	for i, step := range steps {
		hit.Cost = step.cost
		step.want.ResetAfter = 20 * time.Second
		c := take(t.Context(), store, hit)
		if c.Err != nil || c.Results[0] != step.want {
			t.Errorf("step %d, cost %d: %+v %v, want %+v", i, step.cost, c.Results[0], c.Err, step.want)
		}
		if got := server.Do("get", "edge_user_ann_"+strconv.FormatInt(at.Unix(), 10)); got != step.counted {
			t.Errorf("step %d: Redis holds %v, want %s", i, got, step.counted)
		}
	}
	if ttl, ok := server.Do("ttl", "edge_user_ann_"+strconv.FormatInt(at.Unix(), 10)).(int64); !ok || ttl < 58 || ttl > 360 {
		t.Errorf("the key lives for %d s, not a minute and up to 300 s", ttl)
	}

	now.set(at.Add(time.Minute))
	hit.Cost = 1
	if c := take(t.Context(), store, hit); !c.Results[0].Allowed || c.Results[0].Remaining != 2 {
		t.Errorf("in the next window: %+v", c.Results[0])
	}
	if got := server.Do("get", "edge_user_ann_"+strconv.FormatInt(at.Unix()+60, 10)); got != "1" {
		t.Errorf("the next window holds %v", got)
	}
}

func TestEnvoyKeysStopAtTheLimit(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	now := newClock(time.Unix(3600, 0))
	store := open(t, redisstore.Options{Addr: server.Addr(), Now: now.get, EnvoyStop: true})
	l := envoyLimit(t, 2, time.Hour)
	for range 5 {
		take(t.Context(), store, one("edge_a_b_", l))
	}
	if got := server.Do("get", "edge_a_b_3600"); got != "2" {
		t.Errorf("Redis holds %v, want 2", got)
	}
}

// Equal hits that share a round trip are counted as if each had come by itself.
func TestEnvoyKeysInOneRoundTrip(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	now := newClock(time.Unix(7200, 0))
	store := open(t, redisstore.Options{Addr: server.Addr(), Now: now.get})
	l := envoyLimit(t, 5, time.Hour)
	charges := make([]ratelimit.Charge, 4)
	for i := range charges {
		charges[i] = ratelimit.Charge{
			Hits: []ratelimit.Hit{{Key: "edge_a_b_", Limit: l, Cost: 2, Partial: true}}, Results: make([]ratelimit.Result, 1),
		}
	}
	store.Take(t.Context(), charges)
	for i, want := range []ratelimit.Result{
		{Allowed: true, Granted: 2, Remaining: 3}, {Allowed: true, Granted: 2, Remaining: 1}, {Granted: 1}, {},
	} {
		want.ResetAfter = time.Hour
		if !want.Allowed {
			want.RetryAfter = time.Hour
		}
		if charges[i].Err != nil || charges[i].Results[0] != want {
			t.Errorf("hit %d: %+v %v, want %+v", i, charges[i].Results[0], charges[i].Err, want)
		}
	}
	if got := server.Do("get", "edge_a_b_7200"); got != "8" {
		t.Errorf("Redis holds %v, want 8", got)
	}
}

// Replicas of another kind count with INCRBY at the same time: together they never admit more than the limit.
func TestEnvoyKeysSharedWithIncrby(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	now := newClock(time.Unix(36_000, 0))
	stores := []*redisstore.Store{
		open(t, redisstore.Options{Addr: server.Addr(), Now: now.get}), open(t, redisstore.Options{Addr: server.Addr(), Now: now.get}),
	}
	const count = 1000
	l := envoyLimit(t, count, time.Hour)
	var admitted atomic.Int64
	var group sync.WaitGroup
	for i := range 30 {
		group.Go(func() {
			for range 50 {
				if i%3 == 0 {
					if n, err := server.Client().IncrBy(t.Context(), "edge_a_b_36000", 1).Result(); err == nil && n <= count {
						admitted.Add(1)
					}
				} else if c := take(t.Context(), stores[i%2], one("edge_a_b_", l)); c.Err == nil && c.Results[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	if admitted.Load() != count {
		t.Errorf("%d admitted, want %d", admitted.Load(), count)
	}
	if got := server.Do("get", "edge_a_b_36000"); got != "1500" {
		t.Errorf("Redis holds %v, want all 1500", got)
	}
}

// All or nothing, together with counters of weir's own form.
func TestEnvoyKeysInGroups(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	now := newClock(time.Unix(3600, 0))
	store := open(t, redisstore.Options{Addr: server.Addr(), Now: now.get})
	shared, own := envoyLimit(t, 1, time.Hour), limit(t, ratelimit.TokenBucket, 5, time.Hour)
	for i, want := range []bool{true, false, false} {
		c := take(t.Context(), store, one("edge_a_b_", shared), one("weir:a:60", own))
		if c.Err != nil || c.Results[0].Allowed != want || (c.Results[1].Granted == 1) != want {
			t.Errorf("group %d: %+v %v", i, c.Results, c.Err)
		}
	}
	if got := server.Do("get", "edge_a_b_3600"); got != "1" {
		t.Errorf("a group that was denied was counted: Redis holds %v", got)
	}
	for range 2 {
		charges := []ratelimit.Charge{{ID: "x", Hits: []ratelimit.Hit{one("edge_c_d_", shared)}, Results: make([]ratelimit.Result, 1)}}
		if store.Take(t.Context(), charges); charges[0].Err != nil || !charges[0].Results[0].Allowed {
			t.Errorf("a charge with an ID: %+v %v", charges[0].Results[0], charges[0].Err)
		}
	}
}

func TestEnvoyKeysOnCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t)
	now := newClock(time.Unix(3600, 0))
	store := open(t, redisstore.Options{Cluster: cluster.Addrs(), Now: now.get})
	l := envoyLimit(t, 2, time.Hour)
	charges := make([]ratelimit.Charge, 0, 60)
	for i := range 60 {
		charges = append(charges, ratelimit.Charge{
			Hits: []ratelimit.Hit{one(fmt.Sprintf("edge_user_u%d_", i%20), l)}, Results: make([]ratelimit.Result, 1),
		})
	}
	store.Take(t.Context(), charges)
	for i := range charges {
		if charges[i].Err != nil || charges[i].Results[0].Allowed != (i < 40) {
			t.Errorf("hit %d: %+v %v", i, charges[i].Results[0], charges[i].Err)
		}
	}
	for i := range 20 {
		key := fmt.Sprintf("edge_user_u%d_3600", i)
		if node, _ := cluster.NodeOf(key); node.Do("get", key) != "3" {
			t.Errorf("%s: Redis holds %v, want 3", key, node.Do("get", key))
		}
	}
	if c := take(t.Context(), store, one("edge_a_b_", l), one("edge_c_d_", l)); !errors.Is(c.Err, redisstore.ErrCrossSlot) {
		t.Errorf("two such hits of one charge: %v", c.Err)
	}
}

// What is given back is announced by the key that hits have.
func TestEnvoyKeysAreAnnounced(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store := open(t, redisstore.Options{Addr: server.Addr(), Channel: "drop"})
	heard := &heardKeys{keys: make(chan string, 10), on: make(chan struct{}, 10)}
	defer store.Listen(heard)()
	<-heard.on
	l := envoyLimit(t, 2, time.Hour)
	take(t.Context(), store, one("edge_user_7_", l))
	take(t.Context(), store, ratelimit.Hit{Key: "edge_user_7_", Limit: l, Cost: -1})
	if key := <-heard.keys; key != "edge_user_7_" {
		t.Errorf("dropped %q", key)
	}
}

type heardKeys struct {
	keys chan string
	on   chan struct{}
}

func (h *heardKeys) Drop(key string) { h.keys <- key }
func (h *heardKeys) Listening(heard bool) {
	if heard {
		h.on <- struct{}{}
	}
}
