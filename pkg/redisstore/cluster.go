package redisstore

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// node is a primary of a Cluster, and what it is to decide.
type node struct {
	client   *redis.Client
	requests []*request
}

// takeCluster decides charges on the nodes that hold their keys: one run of the script for each descriptor, because a
// script must keep to one slot; one round trip for each node, all at the same time.
func (s *Store) takeCluster(ctx context.Context, charges []ratelimit.Charge) {
	clock := s.clock()
	byBase := make(map[string]*request)
	var requests []*request
	for i := range charges {
		c := &charges[i]
		if !open(c) {
			continue
		}
		base, same := baseOf(c.Hits)
		if !same {
			c.Err = ErrCrossSlot
			continue
		}
		r := byBase[base]
		if r == nil {
			r = s.requests.Get().(*request)
			byBase[base] = r
			requests = append(requests, r)
		}
		r.add(c, clock.time, true)
	}
	var nodes []node
	for _, r := range requests {
		r.pack(clock.micros, s.options.IdempotencyTTL)
		client, err := s.cluster.MasterForKey(ctx, r.keys[0])
		if err != nil {
			r.finish(nil, unavailable(err))
			continue
		}
		nodes = assign(nodes, client, r)
	}
	var group sync.WaitGroup
	for i := 1; i < len(nodes); i++ {
		group.Go(func() { s.runNode(ctx, nodes[i].client, nodes[i].requests) })
	}
	if len(nodes) > 0 {
		s.runNode(ctx, nodes[0].client, nodes[0].requests)
	}
	group.Wait()
	for _, r := range requests {
		s.release(r)
	}
}

func assign(nodes []node, client *redis.Client, r *request) []node {
	for i := range nodes {
		if nodes[i].client == client {
			nodes[i].requests = append(nodes[i].requests, r)
			return nodes
		}
	}
	return append(nodes, node{client, []*request{r}})
}

// runNode sends requests to a node until they are executed, there or where the node says.
func (s *Store) runNode(ctx context.Context, client *redis.Client, requests []*request) {
	for attempt := 1; len(requests) > 0; attempt++ {
		replies := s.sendAll(ctx, client, requests)
		again := requests[:0]
		for i, r := range requests {
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
		requests = again
	}
}

// sendAll is one round trip for any number of requests. It sets each one's err.
func (s *Store) sendAll(ctx context.Context, client *redis.Client, requests []*request) [][]int64 {
	replies := make([][]int64, len(requests))
	if len(requests) == 1 {
		replies[0], requests[0].err = s.send(ctx, requests[0], client)
		return replies
	}
	pipe := client.Pipeline()
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
