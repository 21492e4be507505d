package redisstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/storetest"
	"github.com/weirhq/weir/test/servers"
)

const (
	replicas = 3
	callers  = 300
	thousand = 1000
)

// group opens stores that share a server, and a clock that stands still.
func group(t *testing.T, server *servers.RedisServer) []*redisstore.Store {
	t.Helper()
	clock := storetest.NewClock(time.Date(2026, time.March, 1, 12, 0, 1, 0, time.UTC))
	stores := make([]*redisstore.Store, replicas)
	for i := range stores {
		stores[i] = open(t, redisstore.Options{Addr: server.Addr(), Now: clock.Now})
	}
	return stores
}

// rush lets all callers take hits of cost 1 at the same time, and returns how many were granted. An error fails the test.
func rush(t *testing.T, stores []*redisstore.Store, key string, l *ratelimit.Limit, hitsPerCaller int) int64 {
	t.Helper()
	var granted atomic.Int64
	crowd(callers, func(i int) {
		for range hitsPerCaller {
			c := take(t.Context(), stores[i%len(stores)], one(key, l))
			if c.Err != nil {
				t.Error(c.Err)
			}
			granted.Add(c.Results[0].Granted)
		}
	})
	return granted.Load()
}

// Redis forgets the script again and again, and no caller notices.
func TestScriptsFlushed(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	stores := group(t, server)
	for _, algorithm := range ratelimit.Algorithms() {
		key, l := "flush:"+algorithm.String()+":3600", limit(t, algorithm, thousand, time.Hour)
		stop, stopped := make(chan struct{}), make(chan int)
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					stopped <- n
					return
				default:
					server.FlushScripts()
				}
			}
		}()
		granted := rush(t, stores, key, l, 4)
		close(stop)
		if flushed := <-stopped; granted != thousand || flushed == 0 {
			t.Errorf("%v: %d granted of %d while scripts were lost %d times", algorithm, granted, thousand, flushed)
		}
	}
}

// Redis is restarted between two rushes. What it has saved still counts.
func TestRestarted(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	stores := group(t, server)
	limits := make(map[ratelimit.Algorithm]*ratelimit.Limit)
	for _, algorithm := range ratelimit.Algorithms() {
		limits[algorithm] = limit(t, algorithm, thousand, time.Hour)
		if n := rush(t, stores, "restart:"+algorithm.String()+":3600", limits[algorithm], 2); n != 2*callers {
			t.Fatalf("%v: %d granted, want %d", algorithm, n, 2*callers)
		}
	}
	server.Save()
	server.Restart()
	for algorithm, l := range limits {
		if n := rush(t, stores, "restart:"+algorithm.String()+":3600", l, 2); n != thousand-2*callers {
			t.Errorf("%v: %d granted after a restart, want the %d that were left", algorithm, n, thousand-2*callers)
		}
	}
	// Nothing of the second rush was saved: what survives are the 600 of the first.
	server.Restart()
	for algorithm, l := range limits {
		if n := rush(t, stores, "restart:"+algorithm.String()+":3600", l, 4); n != thousand-2*callers {
			t.Errorf("%v: %d granted after a restart with older data, want %d", algorithm, n, thousand-2*callers)
		}
	}
	server.Do("flushall")
	server.Save()
	server.Restart()
	for algorithm, l := range limits {
		if n := rush(t, stores, "restart:"+algorithm.String()+":3600", l, 4); n != thousand {
			t.Errorf("%v: %d granted after all was lost, want %d", algorithm, n, thousand)
		}
	}
}

// With the clock of Redis: counters fill, refuse, and are there again after the window.
func TestServerClock(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store := open(t, redisstore.Options{Addr: server.Addr()})
	for _, algorithm := range ratelimit.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			key, l := "clock:"+algorithm.String()+":1", limit(t, algorithm, 3, 300*time.Millisecond)
			var denied ratelimit.Result
			granted := int64(0)
			began := time.Now()
			for denied == (ratelimit.Result{}) || denied.Allowed {
				c := take(t.Context(), store, one(key, l))
				if c.Err != nil {
					t.Fatal(c.Err)
				}
				denied = c.Results[0]
				granted += denied.Granted
			}
			most := 3 + 3*int64(time.Since(began)/l.Window+1)
			if granted < 3 || granted > most || denied.RetryAfter <= 0 || denied.RetryAfter > 2*l.Window || denied.ResetAfter > 2*l.Window {
				t.Errorf("%d granted, then %+v", granted, denied)
			}
			time.Sleep(denied.RetryAfter)
			if c := take(t.Context(), store, one(key, l)); c.Err != nil || !c.Results[0].Allowed {
				t.Errorf("after the %v that were to be waited: %+v, %v", denied.RetryAfter, c.Results[0], c.Err)
			}
			servers.Eventually(t, "the key is gone once nothing is used", func() bool {
				return server.Client().Exists(t.Context(), key).Val() == 0
			})
		})
	}
}

// Keys live as long as they are needed, and not much longer, however often they are charged.
func TestTimeToLive(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store := open(t, redisstore.Options{Addr: server.Addr()})
	for _, algorithm := range ratelimit.Algorithms() {
		for _, cost := range []int64{1, 7, 10} {
			key, l := fmt.Sprintf("ttl:%v-%d:3600", algorithm, cost), limit(t, algorithm, 10, 1000*time.Hour)
			look := ratelimit.Hit{Key: key, Limit: l}
			for _, hit := range []ratelimit.Hit{look, {Key: key, Limit: l, Cost: -1}, {Key: key, Limit: l, Cost: 11}} {
				if c := take(t.Context(), store, hit); c.Err != nil {
					t.Fatal(c.Err)
				}
				if n := server.Do("exists", key); n != int64(0) {
					t.Fatalf("%v: cost %d on a counter never used left a key behind", algorithm, hit.Cost)
				}
			}
			for n := int64(0); n+cost <= 10; n += cost {
				c := take(t.Context(), store, ratelimit.Hit{Key: key, Limit: l, Cost: cost})
				if c.Err != nil {
					t.Fatal(c.Err)
				}
				lives := server.Client().PTTL(t.Context(), key).Val()
				needed := c.Results[0].ResetAfter
				if lives < needed-time.Second || lives > needed+time.Minute+time.Second {
					t.Errorf("%v: a key that is needed for %v lives for %v", algorithm, needed, lives)
				}
			}
			dump := server.Do("dump", key)
			if c := take(t.Context(), store, ratelimit.Hit{Key: key, Limit: l, Cost: 10}); c.Err != nil || c.Results[0].Granted != 0 {
				t.Errorf("%v: %+v %v", algorithm, c.Results[0], c.Err)
			}
			if server.Do("dump", key) != dump {
				t.Errorf("%v: a denied hit changed the key", algorithm)
			}
		}
	}
}

// What is under a key and is no counter, or one of another algorithm, is a counter never used.
func TestForeignValues(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store := open(t, redisstore.Options{Addr: server.Addr()})
	const key = "foreign:a:3600"
	state := func(algorithm byte, numbers ...float64) string {
		packed := []byte{algorithm}
		for _, n := range numbers {
			packed = binary.LittleEndian.AppendUint64(packed, math.Float64bits(n))
		}
		return string(packed)
	}
	values := map[string][]any{
		"a word":             {"set", key, "word"},
		"nothing":            {"set", key, ""},
		"a number":           {"set", key, "12"},
		"as long as a state": {"set", key, strings.Repeat("x", 41)},
		"a hash":             {"hset", key, "field", "value"},
		"a set":              {"sadd", key, "member"},
		"a sorted set":       {"zadd", key, "1", "member"},
		"a stream":           {"xadd", key, "*", "a", "b"},
		"a list of words":    {"rpush", key, "a", "b", "c"},
		"a list of numbers":  {"rpush", key, "1", "2", "3"},
		"a list without end": {"rpush", key, "Lnan", "inf"},
		"a list, half ours":  {"rpush", key, "L12", "word", "word", "word"},
	}
	for i := range ratelimit.Algorithms() {
		values[fmt.Sprintf("no numbers %d", i+1)] = []any{"set", key, state(byte(i+1), math.NaN(), 1, 1, 1, 1)}
		values[fmt.Sprintf("infinite %d", i+1)] = []any{"set", key, state(byte(i+1), 1, math.Inf(1), 1, 1, 1)}
		values[fmt.Sprintf("negative %d", i+1)] = []any{"set", key, state(byte(i+1), 1, -7, 1, 1, 1)}
		values[fmt.Sprintf("without unit %d", i+1)] = []any{"set", key, state(byte(i+1), 1, 1, 1, 0, 1)}
	}
	for name, command := range values {
		for _, algorithm := range ratelimit.Algorithms() {
			l := limit(t, algorithm, 10, time.Hour)
			server.Do("del", key)
			server.Do(command...)
			for i := range 3 {
				c := take(t.Context(), store, ratelimit.Hit{Key: key, Limit: l, Cost: 3})
				if c.Err != nil || c.Results[0].Granted != 3 || c.Results[0].Remaining != int64(7-3*i) {
					t.Errorf("%v over %s: charge %d: %+v, %v", algorithm, name, i, c.Results[0], c.Err)
				}
			}
			if ttl := server.Do("pttl", key).(int64); ttl <= 0 {
				t.Errorf("%v over %s: the key lives for ever", algorithm, name)
			}
		}
	}
	for _, first := range ratelimit.Algorithms() {
		for _, second := range ratelimit.Algorithms() {
			server.Do("del", key)
			a, b := limit(t, first, 10, time.Hour), limit(t, second, 10, time.Hour)
			if first == second {
				continue
			}
			// In calls of their own, and then in one call.
			take(t.Context(), store, ratelimit.Hit{Key: key, Limit: a, Cost: 3})
			var charges []ratelimit.Charge
			for _, l := range []*ratelimit.Limit{b, b, a, b, b} {
				charges = append(charges, ratelimit.Charge{
					Hits: []ratelimit.Hit{{Key: key, Limit: l, Cost: 2}}, Results: make([]ratelimit.Result, 1),
				})
			}
			store.Take(t.Context(), charges)
			for i, want := range []int64{8, 6, 8, 8, 6} {
				if got := charges[i]; got.Err != nil || got.Results[0].Remaining != want {
					t.Errorf("%v after %v: charge %d: %+v, %v; want %d left", second, first, i, got.Results[0], got.Err, want)
				}
			}
		}
	}
}

func TestLargeCalls(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t)
	for name, options := range map[string]redisstore.Options{
		"server":  {Addr: servers.Redis(t).Addr()},
		"cluster": {Cluster: cluster.Addrs()},
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, options)
			l := limit(t, ratelimit.TokenBucket, 2, time.Hour)
			charges := make([]ratelimit.Charge, 2500)
			for i := range charges {
				charges[i] = ratelimit.Charge{
					Hits: []ratelimit.Hit{one(fmt.Sprintf("large:%d:3600", i%1000), l)}, Results: make([]ratelimit.Result, 1),
				}
			}
			store.Take(t.Context(), charges)
			for i := range charges {
				if charges[i].Err != nil || charges[i].Results[0].Allowed != (i < 2000) {
					t.Fatalf("charge %d: %+v, %v", i, charges[i].Results[0], charges[i].Err)
				}
			}
			hits := make([]ratelimit.Hit, 10_000)
			for i := range hits {
				hits[i] = one(fmt.Sprintf("group:%d", i), l)
			}
			if c := take(t.Context(), store, hits...); c.Err != nil || c.Results[9999].Granted != 1 {
				t.Errorf("a charge of 10,000 hits: %+v, %v", c.Results[9999], c.Err)
			}
			hits = slices.Concat(hits, []ratelimit.Hit{one("group:10000", l)})
			if c := take(t.Context(), store, hits...); !errors.Is(c.Err, redisstore.ErrTooManyHits) {
				t.Errorf("a charge of 10,001 hits: %v", c.Err)
			}
			log := limit(t, ratelimit.SlidingLog, ratelimit.MaxLogCount, time.Hour)
			hit := ratelimit.Hit{Key: "log:3600", Limit: log, Cost: 9_999}
			if c := take(t.Context(), store, hit); c.Err != nil || c.Results[0].Remaining != 1 {
				t.Errorf("a log of 9,999 hits: %+v, %v", c.Results[0], c.Err)
			}
			hit.Cost = -9_000
			if c := take(t.Context(), store, hit); c.Err != nil || c.Results[0].Remaining != 9_001 {
				t.Errorf("a log of 999 hits: %+v, %v", c.Results[0], c.Err)
			}
		})
	}
}

// A charge without room for its results fails alone.
func TestChargesFailAlone(t *testing.T) {
	t.Parallel()
	store := open(t, redisstore.Options{Addr: servers.Redis(t).Addr()})
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	hit := one("alone:3600", l)
	charges := []ratelimit.Charge{
		{Hits: []ratelimit.Hit{hit}, Results: make([]ratelimit.Result, 1)},
		{Hits: []ratelimit.Hit{hit}},
		{Hits: []ratelimit.Hit{hit}, Results: make([]ratelimit.Result, 1)},
	}
	store.Take(t.Context(), charges)
	if charges[0].Err != nil || charges[1].Err == nil || charges[2].Err != nil || charges[2].Results[0].Remaining != 8 {
		t.Errorf("%v, %v, %v, %+v", charges[0].Err, charges[1].Err, charges[2].Err, charges[2].Results[0])
	}
}

var _ engine.Store = (*redisstore.Store)(nil)
