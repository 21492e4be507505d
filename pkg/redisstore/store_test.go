package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/storetest"
	"github.com/weirhq/weir/test/servers"
)

// patient is the timeout of stores in tests that are not about time: the machine may be busy.
const patient = 20 * time.Second

// open returns a store that is closed with the test.
func open(t testing.TB, options redisstore.Options) *redisstore.Store {
	t.Helper()
	if options.Timeout == 0 {
		options.Timeout = patient
	}
	store, err := redisstore.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}

// harness makes stores that differ only in their clock. empty empties the Redis behind them.
func harness(options redisstore.Options, empty func()) storetest.Harness {
	replicas := func(t testing.TB, n int, now func() time.Time) []engine.Store {
		t.Helper()
		empty()
		stores := make([]engine.Store, n)
		for i := range stores {
			options.Now = now
			stores[i] = open(t, options)
		}
		return stores
	}
	return storetest.Harness{
		New: func(t testing.TB, now func() time.Time) engine.Store {
			t.Helper()
			return replicas(t, 1, now)[0]
		},
		Replicas: replicas,
		IDPeriod: redisstore.DefaultIdempotencyTTL,
	}
}

func TestContractOnOneServer(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	storetest.Run(t, harness(redisstore.Options{Addr: server.Addr()}, func() { server.Do("flushall") }))
}

func TestContractOnSentinel(t *testing.T) {
	t.Parallel()
	group := servers.Sentinel(t)
	storetest.Run(t, harness(redisstore.Options{Sentinel: group.Addrs(), MasterName: group.Master()},
		func() { group.Primary().Do("flushall") }))
}

func TestContractOnCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t)
	storetest.Run(t, harness(redisstore.Options{Cluster: cluster.Addrs()}, func() {
		for _, node := range cluster.Nodes() {
			node.Do("flushall")
		}
	}))
}

// limit returns a checked limit.
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

// take charges one hit.
func take(ctx context.Context, store engine.Store, hits ...ratelimit.Hit) ratelimit.Charge {
	charges := []ratelimit.Charge{{Hits: hits, Results: make([]ratelimit.Result, len(hits))}}
	store.Take(ctx, charges)
	return charges[0]
}

// one is a hit of cost 1.
func one(key string, l *ratelimit.Limit) ratelimit.Hit {
	return ratelimit.Hit{Key: key, Limit: l, Cost: 1}
}
