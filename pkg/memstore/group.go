package memstore

import (
	"hash/maphash"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// maxPooledHits is the size up to which a group's memory is kept for the next one.
const maxPooledHits = 64

// group is the working memory for a charge of several hits, one element per hit in each slice.
type group struct {
	hashes []uint64
	shards []int // ascending once locked, so no longer in the hits' order
	refs   []ref
	states []algo.State
}

// take decides a charge while it holds all of its shards.
func (g *group) take(s *Store, c *ratelimit.Charge, now int64) {
	g.hashes, g.shards, g.refs, g.states = g.hashes[:0], g.shards[:0], g.refs[:0], g.states[:0]
	for i := range c.Hits {
		hash := maphash.String(s.seed, c.Hits[i].Key)
		g.hashes = append(g.hashes, hash)
		g.shards = append(g.shards, s.shardNumber(hash))
	}
	s.lock(g.shards)
	defer s.unlock(g.shards)
	for i := range c.Hits {
		sh := s.shard(g.hashes[i])
		r := sh.find(c.Hits[i].Key, g.hashes[i])
		g.refs = append(g.refs, r)
		g.states = append(g.states, sh.load(r))
	}
	if algo.Take(c.Hits, g.states, now, c.Results) {
		g.save(s, c, now)
	}
}

// release makes the memory ready for another charge.
func (g *group) release(s *Store) {
	if cap(g.states) > maxPooledHits {
		return
	}
	clear(g.states) // they refer to logs
	s.groups.Put(g)
}

// save writes back what was charged. It makes room only when all is written, because that may remove any entry.
func (g *group) save(s *Store, c *ratelimit.Charge, now int64) {
	for i, r := range g.refs {
		if c.Results[i].Granted == 0 {
			continue
		}
		sh, state := s.shard(g.hashes[i]), &g.states[i]
		expires := expiry(state, &c.Results[i])
		if r != none {
			sh.save(r, state, expires)
		} else {
			sh.add(c.Hits[i].Key, g.hashes[i], state, expires)
		}
	}
	for _, hash := range g.hashes {
		s.shard(hash).makeRoom(now)
	}
}

// expiry is when the counter will equal one never used.
func expiry(state *algo.State, result *ratelimit.Result) int64 {
	return state.At + result.ResetAfter.Microseconds()
}
