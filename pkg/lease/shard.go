package lease

import (
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// shards is how many parts the store has, each with a lock of its own.
	shards = 64
	// looked is how many counters are looked at to find one that may be forgotten when there is no room.
	looked = 8
)

// shard is a part of the busy counters.
type shard struct {
	mu       sync.Mutex
	counters map[string]*counter
	most     int
	heat     heat
	store    *Store

	_ [64]byte // so that two shards' locks are not in one line of the processor's cache
}

// add begins to care for a counter that was found busy, if there is room. mu is held.
func (s *shard) add(key string, limit *ratelimit.Limit, now time.Time) *counter {
	if len(s.counters) >= s.most && !s.makeRoom(now) {
		return nil
	}
	if s.counters == nil {
		s.counters = make(map[string]*counter)
	}
	c := &counter{limit: limit, period: period(limit, now), hits: hot}
	s.counters[strings.Clone(key)] = c // it is the caller's memory
	s.store.cares.Store(true)
	return c
}

// end takes away what is left of a counter's lease. mu is held.
func (s *shard) end(c *counter) {
	if c.held.left > 0 {
		s.store.tally.lost.Add(uint64(c.held.left))
	}
	c.held = grant{}
}

// makeRoom forgets a counter that is not busy any more, if one is found among a few. mu is held.
func (s *shard) makeRoom(now time.Time) bool {
	seen := 0
	for key, c := range s.counters {
		if c.idle(now) {
			s.end(c)
			delete(s.counters, key)
			return true
		}
		if seen++; seen == looked {
			return false
		}
	}
	return false
}

// drop ends a counter's lease, and makes sure that one which is under way is not used.
func (s *shard) drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counters[key]; c != nil {
		s.end(c)
		c.epoch++
		c.known = false
	}
}

// clear forgets all counters.
func (s *shard) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.counters {
		s.end(c)
	}
	clear(s.counters)
}
