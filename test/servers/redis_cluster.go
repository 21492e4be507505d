package servers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	clusterPrimaries = 3
	clusterSlots     = 16384
)

// RedisCluster is a Redis Cluster of three primaries without replicas.
type RedisCluster struct {
	t     testing.TB
	nodes []*RedisServer
}

// Cluster starts three primaries, joins them, and returns once each knows that the cluster is complete.
func Cluster(t testing.TB, options ...RedisOption) *RedisCluster {
	t.Helper()
	c := &RedisCluster{t: t}
	for i := range clusterPrimaries {
		node := newRedis(t, fmt.Sprintf("cluster node %d", i), append(slices.Clone(options), asClusterNode)...)
		node.start()
		first, last := i*clusterSlots/clusterPrimaries, (i+1)*clusterSlots/clusterPrimaries-1
		node.Do("cluster", "addslotsrange", first, last)
		node.Do("cluster", "set-config-epoch", i+1)
		c.nodes = append(c.nodes, node)
	}
	for _, node := range c.nodes[1:] {
		c.nodes[0].Do("cluster", "meet", "127.0.0.1", node.Port(), node.busPort)
	}
	Eventually(t, "the cluster is complete", func() bool {
		for _, node := range c.nodes {
			info, err := node.Client().Do(t.Context(), "cluster", "info").Text()
			if err != nil || !strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", clusterPrimaries)) ||
				!strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d", clusterSlots)) {
				return false
			}
		}
		return true
	})
	return c
}

// asClusterNode makes a server a node of a cluster, on a bus port that is chosen when it starts.
func asClusterNode(s *RedisServer) {
	s.busPort = -1
	s.config = append(s.config, "cluster-node-timeout 10000")
}

// Addrs lists the nodes' addresses.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Nodes lists the nodes.
func (c *RedisCluster) Nodes() []*RedisServer { return c.nodes }

// NodeOf returns the node that holds key, and the key's slot.
func (c *RedisCluster) NodeOf(key string) (*RedisServer, int) {
	c.t.Helper()
	reply, err := c.nodes[0].Client().ClusterKeySlot(context.Background(), key).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	slot := int(reply)
	shards, err := c.nodes[0].Client().ClusterShards(context.Background()).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, shard := range shards {
		for _, slots := range shard.Slots {
			if int64(slot) < slots.Start || int64(slot) > slots.End {
				continue
			}
			for _, node := range c.nodes {
				if int64(node.Port()) == shard.Nodes[0].Port {
					return node, slot
				}
			}
		}
	}
	c.t.Fatalf("nobody holds slot %d", slot)
	return nil, 0
}

// ID is the name by which a node is known in its cluster.
func (c *RedisCluster) ID(node *RedisServer) string {
	c.t.Helper()
	return node.Do("cluster", "myid").(string)
}

// BeginMove opens a slot's move to another node without moving a key: keys that the old node does not have are redirected.
func (c *RedisCluster) BeginMove(slot int, from, to *RedisServer) {
	c.t.Helper()
	to.Do("cluster", "setslot", slot, "importing", c.ID(from))
	from.Do("cluster", "setslot", slot, "migrating", c.ID(to))
}

// FinishMove moves the slot's keys and tells all nodes who holds it.
func (c *RedisCluster) FinishMove(slot int, from, to *RedisServer) {
	c.t.Helper()
	keys, err := from.Client().ClusterGetKeysInSlot(context.Background(), slot, 1000).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, key := range keys {
		from.Do("migrate", "127.0.0.1", to.Port(), key, 0, StartTimeout.Milliseconds())
	}
	for _, node := range append([]*RedisServer{to, from}, c.nodes...) {
		node.Do("cluster", "setslot", slot, "node", c.ID(to))
	}
}
