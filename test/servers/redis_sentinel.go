package servers

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	sentinelMaster = "weir"
	sentinelCount  = 3
	// downAfter is how long a primary must be silent before the sentinels replace it. A busy machine makes a process silent
	// for a while, so it is not shorter.
	downAfter = 2 * time.Second
)

// RedisSentinel is a primary with a replica, watched by three sentinels.
type RedisSentinel struct {
	t         testing.TB
	nodes     [2]*RedisServer
	sentinels []*RedisServer
}

// Sentinel starts a primary, a replica in step with it, and the sentinels that watch them.
func Sentinel(t testing.TB, options ...RedisOption) *RedisSentinel {
	t.Helper()
	primary := Redis(t, options...)
	replica := Redis(t, append(slices.Clone(options),
		WithConfig(fmt.Sprintf("replicaof 127.0.0.1 %d", primary.Port()), "replica-serve-stale-data no"))...)
	s := &RedisSentinel{t: t, nodes: [2]*RedisServer{primary, replica}}
	Eventually(t, "the replica is in step with its primary", func() bool {
		return replica.Client().Do(t.Context(), "get", "none").Err() == redis.Nil //nolint:errorlint // go-redis returns it bare
	})
	for i := range sentinelCount {
		sentinel := newRedis(t, fmt.Sprintf("sentinel %d", i), WithConfig(
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", sentinelMaster, primary.Port()),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", sentinelMaster, downAfter.Milliseconds()),
			fmt.Sprintf("sentinel failover-timeout %s 10000", sentinelMaster),
		))
		sentinel.args = []string{"--sentinel"}
		sentinel.start()
		s.sentinels = append(s.sentinels, sentinel)
	}
	Eventually(t, "the sentinels know each other and the replica", func() bool {
		for _, sentinel := range s.sentinels {
			state, err := redis.NewSentinelClient(sentinel.Client().Options()).Master(t.Context(), sentinelMaster).Result()
			if err != nil || state["num-other-sentinels"] != fmt.Sprint(sentinelCount-1) || state["num-slaves"] != "1" {
				return false
			}
		}
		return true
	})
	return s
}

// Master is the name under which the sentinels know the primary.
func (s *RedisSentinel) Master() string { return sentinelMaster }

// Addrs lists the sentinels' addresses.
func (s *RedisSentinel) Addrs() []string {
	addrs := make([]string, len(s.sentinels))
	for i, sentinel := range s.sentinels {
		addrs[i] = sentinel.Addr()
	}
	return addrs
}

// Primary is the node that the sentinels call the primary now.
func (s *RedisSentinel) Primary() *RedisServer {
	s.t.Helper()
	for _, node := range s.nodes {
		if node.Addr() == s.primaryAddr(s.sentinels[0]) {
			return node
		}
	}
	s.t.Fatal("the sentinels name a primary that is none of the nodes")
	return nil
}

// Replica is the other node.
func (s *RedisSentinel) Replica() *RedisServer {
	s.t.Helper()
	if s.nodes[0] == s.Primary() {
		return s.nodes[1]
	}
	return s.nodes[0]
}

func (s *RedisSentinel) primaryAddr(sentinel *RedisServer) string {
	reply, err := sentinel.Client().Do(context.Background(), "sentinel", "get-master-addr-by-name", sentinelMaster).StringSlice()
	if err != nil || len(reply) != 2 {
		s.t.Fatalf("ask %s for the primary: %v %v", sentinel.name, reply, err)
	}
	return reply[0] + ":" + reply[1]
}

// Failover makes the replica the primary, as an operator would for maintenance, and waits until all sentinels agree. The old
// primary follows the new one at once; sentinels left to themselves tell it so ten seconds later.
func (s *RedisSentinel) Failover() {
	s.t.Helper()
	old := s.Primary()
	Eventually(s.t, "a sentinel starts the failover", func() bool {
		return s.sentinels[0].Client().Do(context.Background(), "sentinel", "failover", sentinelMaster).Err() == nil
	})
	s.AwaitFailover(old)
	old.Do("replicaof", "127.0.0.1", s.Primary().Port())
}

// AwaitFailover waits until the sentinels have put another node in place of old, for example after old was killed.
func (s *RedisSentinel) AwaitFailover(old *RedisServer) {
	s.t.Helper()
	Eventually(s.t, "the sentinels agree on the new primary", func() bool {
		for _, sentinel := range s.sentinels {
			if s.primaryAddr(sentinel) == old.Addr() {
				return false
			}
		}
		role, err := s.Primary().Client().Do(context.Background(), "role").Slice()
		return err == nil && len(role) > 0 && role[0] == "master"
	})
}
