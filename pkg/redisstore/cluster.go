package redisstore

import (
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// nodes are the lanes to a Cluster's primaries.
type nodes struct {
	mu    sync.RWMutex
	lanes map[*redis.Client]*lane
}

// lane returns the lane to a node. Those to nodes that have gone are dropped when one is added.
func (n *nodes) lane(s *Store, node *redis.Client) *lane {
	n.mu.RLock()
	l := n.lanes[node]
	n.mu.RUnlock()
	if l != nil {
		return l
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.lanes[node]; l != nil {
		return l
	}
	if n.lanes == nil {
		n.lanes = make(map[*redis.Client]*lane)
	}
	for old, l := range n.lanes {
		if l.idle() {
			delete(n.lanes, old)
		}
	}
	l = &lane{store: s, node: node}
	n.lanes[node] = l
	return l
}

// part is what one node is to decide of a caller's charges.
type part struct {
	lane *lane
	call *call
}

// takeCluster decides charges on the nodes that hold their keys, at the same time.
func (s *Store) takeCluster(ctx context.Context, deadline time.Time, charges []ratelimit.Charge) {
	var few [4]part
	parts := few[:0]
	var key []byte
	for i := range charges {
		c := &charges[i]
		if !check(c) {
			continue
		}
		if !sameSlot(c) {
			c.Err = ErrCrossSlot
			continue
		}
		if hit := &c.Hits[0]; hit.Limit.EnvoyKey {
			key = appendEnvoyName(key[:0], hit, s.now())
		} else {
			key = appendTagged(key[:0], hit.Key)
		}
		node, err := s.cluster.MasterForKey(ctx, unsafe.String(unsafe.SliceData(key), len(key)))
		if err != nil {
			c.Err = unavailable(err)
			continue
		}
		s.part(ctx, &parts, node, deadline).add(c, i, true)
	}
	for i := range parts {
		parts[i].call.ready()
	}
	now := time.Now()
	if len(parts) == 1 {
		parts[0].lane.do(parts[0].call, charges, now)
		return
	}
	var group sync.WaitGroup
	for _, p := range parts {
		group.Go(func() { p.lane.do(p.call, charges, now) })
	}
	group.Wait()
}

// part returns the call for a node, a new one if there is none yet.
func (s *Store) part(ctx context.Context, parts *[]part, node *redis.Client, deadline time.Time) *call {
	for _, p := range *parts {
		if p.lane.node == node {
			return p.call
		}
	}
	p := part{s.nodes.lane(s, node), s.calls.get(ctx, deadline)}
	*parts = append(*parts, p)
	return p.call
}

// runNode sends requests to a node until they are executed, there or where the node says.
func (s *Store) runNode(ctx context.Context, node *redis.Client, requests []*request) {
	pending := requests
	for attempt := 1; len(pending) > 0; attempt++ {
		replies := s.sendAll(ctx, node, pending)
		var again []*request
		for i, r := range pending {
			switch {
			case attempt < attempts && redis.HasErrorPrefix(r.err, "NOSCRIPT"):
				// The first brings the script for all; if it is lost again in between, all do.
				r.full = len(again) == 0 || attempt > 1
				again = append(again, r)
			case moved(r.err), redis.IsReadOnlyError(r.err):
				r.finish(s.redirect(ctx, r))
			default:
				if connectionLost(r.err) {
					s.cluster.ReloadState(ctx) // the node may have been replaced
				}
				r.finish(replies[i], unavailable(r.err))
			}
		}
		pending = again
	}
}

// sendAll is one round trip for any number of requests. It sets each one's err.
func (s *Store) sendAll(ctx context.Context, node *redis.Client, requests []*request) [][]int64 {
	replies := make([][]int64, len(requests))
	if len(requests) == 1 {
		replies[0], requests[0].err = s.send(ctx, requests[0], node)
		return replies
	}
	pipe := node.Pipeline()
	commands := make([]command, len(requests))
	for i, r := range requests {
		commands[i] = r.command(ctx, &s.script)
		_ = pipe.Process(ctx, commands[i]) // queues it
	}
	observed := s.observe()
	_, err := pipe.Exec(ctx)
	observed(err)
	for i, r := range requests {
		replies[i], r.err = commands[i].Val(), commands[i].Err()
	}
	return replies
}

// redirect sends a request through the cluster client, which asks the node that it is redirected to, and learns from it.
func (s *Store) redirect(ctx context.Context, r *request) ([]int64, error) {
	for attempt := 1; ; attempt++ {
		reply, err := s.send(ctx, r, s.cluster)
		if attempt == attempts || !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return reply, unavailable(err)
		}
		r.full = true
	}
}
