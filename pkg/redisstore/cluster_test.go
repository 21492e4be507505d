package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/test/servers"
)

func TestClusterKeepsDescriptorsTogether(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t)
	store := open(t, redisstore.Options{Cluster: cluster.Addrs()})
	l := limit(t, ratelimit.TokenBucket, 10, time.Hour)
	for i := range 20 {
		user := fmt.Sprintf("ratelimit:user:u%d", i)
		c := take(t.Context(), store, one(user+":60", l), one(user+":3600", l))
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		node, _ := cluster.NodeOf("{" + user + "}:60")
		if n := node.Do("exists", "{"+user+"}:60", "{"+user+"}:3600"); n != int64(2) {
			t.Errorf("%s: %v of 2 keys are where the part in braces says", user, n)
		}
	}
	charges := []ratelimit.Charge{
		{Hits: []ratelimit.Hit{one("a:60", l)}, Results: make([]ratelimit.Result, 1)},
		{Hits: []ratelimit.Hit{one("a:60", l), one("b:60", l)}, Results: make([]ratelimit.Result, 2)},
		{Hits: []ratelimit.Hit{one("b:60", l)}, Results: make([]ratelimit.Result, 1)},
	}
	store.Take(t.Context(), charges)
	if charges[0].Err != nil || !errors.Is(charges[1].Err, redisstore.ErrCrossSlot) || charges[2].Err != nil {
		t.Errorf("errors %v, %v, %v; want only the second to fail", charges[0].Err, charges[1].Err, charges[2].Err)
	}
	for i := range 2 {
		if r := charges[2*i].Results[0]; r.Remaining != 9 {
			t.Errorf("%+v: a charge that failed was counted", r)
		}
	}
}

// While a slot moves, and after it has moved, its counters are found, and nothing is counted twice.
func TestClusterSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t)
	store := open(t, redisstore.Options{Cluster: cluster.Addrs()})
	l := limit(t, ratelimit.FixedWindow, 1000, time.Hour)
	fresh, old := ratelimit.Hit{Key: "moving:fresh", Limit: l, Cost: 1}, ratelimit.Hit{Key: "moving:old", Limit: l, Cost: 1}
	check := func(when string, want int64, hit ratelimit.Hit) {
		t.Helper()
		if c := take(t.Context(), store, hit); c.Err != nil || c.Results[0].Remaining != want {
			t.Errorf("%s: %d left, want %d (%v)", when, c.Results[0].Remaining, want, c.Err)
		}
	}
	check("before", 999, old)
	from, slot := cluster.NodeOf("{moving}:old")
	to := cluster.Nodes()[0]
	if to == from {
		to = cluster.Nodes()[1]
	}
	cluster.BeginMove(slot, from, to)
	check("key still there", 998, old)
	check("key on the other side", 999, fresh) // ASK
	check("key on the other side again", 998, fresh)
	to.FlushScripts()
	check("key on the other side, where the script is lost", 997, fresh)
	cluster.FinishMove(slot, from, to)
	check("moved", 997, old) // MOVED
	check("moved", 996, fresh)
	var charges []ratelimit.Charge
	for i := range 100 {
		charges = append(charges, ratelimit.Charge{
			Hits: []ratelimit.Hit{one(fmt.Sprintf("other-%d:1", i), l)}, Results: make([]ratelimit.Result, 1),
		}, ratelimit.Charge{Hits: []ratelimit.Hit{old}, Results: make([]ratelimit.Result, 1)})
	}
	store.Take(t.Context(), charges)
	for i := range charges {
		if charges[i].Err != nil {
			t.Fatal(charges[i].Err)
		}
	}
	check("after a hundred more", 896, old)
}

func TestClusterScriptsLost(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t)
	store := open(t, redisstore.Options{Cluster: cluster.Addrs()})
	l := limit(t, ratelimit.SlidingLog, 10, time.Hour)
	for round := range 3 {
		for _, node := range cluster.Nodes() {
			node.FlushScripts()
		}
		charges := make([]ratelimit.Charge, 60)
		for i := range charges {
			charges[i] = ratelimit.Charge{Hits: []ratelimit.Hit{one(fmt.Sprintf("lost-%d:60", i), l)}, Results: make([]ratelimit.Result, 1)}
		}
		store.Take(t.Context(), charges)
		for i := range charges {
			if c := charges[i]; c.Err != nil || c.Results[0].Remaining != int64(9-round) {
				t.Fatalf("round %d, charge %d: %+v, %v", round, i, c.Results[0], c.Err)
			}
		}
	}
}

// A node that is paused or dead fails its own charges, by the deadline, and no others.
func TestClusterNodeDown(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t, servers.WithConfig("cluster-require-full-coverage no"))
	store := open(t, redisstore.Options{Cluster: cluster.Addrs(), Timeout: 2 * time.Second})
	l := limit(t, ratelimit.FixedWindow, 1000, time.Hour)
	down := cluster.Nodes()[1]
	charges := make([]ratelimit.Charge, 60)
	onNode := make([]bool, len(charges))
	for i := range charges {
		hit := one(fmt.Sprintf("down-%d:60", i), l)
		charges[i] = ratelimit.Charge{Hits: []ratelimit.Hit{hit}, Results: make([]ratelimit.Result, 1)}
		node, _ := cluster.NodeOf("{" + hit.Key[:len(hit.Key)-3] + "}:60")
		onNode[i] = node == down
	}
	check := func(when string, fails bool) {
		t.Helper()
		began := time.Now()
		store.Take(t.Context(), charges)
		if took := time.Since(began); took > 2*time.Second+lateness {
			t.Errorf("%s: it took %v", when, took)
		}
		for i := range charges {
			if failed := charges[i].Err != nil; failed != (fails && onNode[i]) {
				t.Errorf("%s: charge %d: error %v, its node is down: %t", when, i, charges[i].Err, fails && onNode[i])
			}
		}
	}
	check("all up", false)
	down.Pause()
	check("paused", true)
	down.Resume()
	servers.Eventually(t, "the node answers again", func() bool { return store.Ping(t.Context()) == nil })
	check("resumed", false)
	down.Kill()
	check("dead", true)
	down.Restart()
	servers.Eventually(t, "all nodes answer", func() bool { return store.Ping(t.Context()) == nil })
	servers.Eventually(t, "the restarted node counts", func() bool {
		store.Take(t.Context(), charges)
		for i := range charges {
			if charges[i].Err != nil {
				return false
			}
		}
		return true
	})
}
