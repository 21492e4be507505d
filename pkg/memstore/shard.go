package memstore

import (
	"math/bits"
	"sync"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	pageSize = 256 // entries
	// marksPerKey marks of a sliding log have about the memory of a key.
	marksPerKey = 8
	// probes is how many entries are looked at in search of a dead one before a live one is evicted.
	probes = 8
)

// ref is the number of an entry in its shard.
type ref = uint32

// none refers to no entry. The entry of this number is the list's head: its older neighbour is the most recently used
// entry, its newer one the least recently used.
const none ref = 0

// entry is one key and its counter.
type entry struct {
	at, a, b, unit int64  // see algo.State
	expires        int64  // when the counter will equal one never used
	tag            uint32 // the hash's lower half, by which the bucket is chosen
	next           ref    // in the same bucket; the next free entry while this one is free
	newer, older   ref    // by last use
	key            keyRef
	algorithm      ratelimit.Algorithm // 0 while the entry is free
}

// shard is a part of the store under a lock of its own. Its methods need the lock, unless they say that they take it.
type shard struct {
	mu      sync.Mutex
	usage   *usage
	buckets []ref // by hash; its length is a power of two
	pages   []*[pageSize]entry
	length  ref // number of entries in use or free
	free    ref
	cursor  ref // where the sweep goes on
	keys    keys
	logs    map[ref][]algo.Mark // of the entries that have one
	state   [1]algo.State       // working memory of take, here so that it is not allocated

	_ [64]byte // so that two shards' locks are not in one line of the processor's cache
}

func (s *shard) init(u *usage, size int) {
	s.usage = u
	s.buckets = make([]ref, 1<<bits.Len(uint(size-1)))
	s.logs = make(map[ref][]algo.Mark)
	s.pages = append(s.pages, new([pageSize]entry))
	s.length = 1
}

func (s *shard) at(r ref) *entry { return &s.pages[r/pageSize][r%pageSize] }

func (s *shard) bucket(tag uint32) *ref { return &s.buckets[tag&uint32(len(s.buckets)-1)] }

// take decides a charge of one hit. It takes the lock.
func (s *shard) take(c *ratelimit.Charge, hash uint64, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hit := &c.Hits[0]
	r := s.find(hit.Key, hash)
	state := &s.state[0]
	*state = s.load(r)
	if algo.Take(c.Hits, s.state[:], now, c.Results) {
		expires := expiry(state, &c.Results[0])
		if r != none {
			s.save(r, state, expires)
		} else {
			s.add(hit.Key, hash, state, expires)
		}
		s.makeRoom(now)
	}
	state.Log = nil // it is the entry's
}

// forget removes a key. It takes the lock.
func (s *shard) forget(key string, hash uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.find(key, hash); r != none {
		s.remove(r)
	}
}

// find returns the entry of a key, which becomes the most recently used one, or none.
func (s *shard) find(key string, hash uint64) ref {
	tag := uint32(hash)
	r := *s.bucket(tag)
	if r == none {
		return none
	}
	k := shorten(key)
	for r != none {
		e := s.at(r)
		if e.tag == tag && s.keys.equal(e.key, k) {
			if s.newest() != r {
				s.unlink(e)
				s.link(r, e)
			}
			return r
		}
		r = e.next
	}
	return none
}

// load returns the counter of an entry; of none, a counter never used.
func (s *shard) load(r ref) algo.State {
	if r == none {
		return algo.State{}
	}
	e := s.at(r)
	state := algo.State{At: e.at, A: e.a, B: e.b, Unit: e.unit, Algorithm: e.algorithm}
	if e.algorithm == ratelimit.SlidingLog {
		state.Log = s.logs[r]
	}
	return state
}

// save writes a counter back.
func (s *shard) save(r ref, state *algo.State, expires int64) {
	e := s.at(r)
	if e.algorithm == ratelimit.SlidingLog || state.Algorithm == ratelimit.SlidingLog {
		s.saveLog(r, state.Log)
	}
	e.at, e.a, e.b, e.unit, e.algorithm, e.expires = state.At, state.A, state.B, state.Unit, state.Algorithm, expires
}

func (s *shard) saveLog(r ref, log []algo.Mark) {
	s.usage.weight.Add(weight(log) - weight(s.logs[r]))
	if log == nil {
		delete(s.logs, r)
	} else {
		s.logs[r] = log
	}
}

// weight is how many keys have as much memory as a log's marks.
func weight(log []algo.Mark) int64 { return int64(cap(log) / marksPerKey) }

// add makes an entry for a key that has none. The store may hold too much afterwards, see makeRoom.
func (s *shard) add(key string, hash uint64, state *algo.State, expires int64) {
	r := s.free
	if r != none {
		s.free = s.at(r).next
	} else {
		r = s.length
		s.length++
		if int(r/pageSize) == len(s.pages) {
			s.pages = append(s.pages, new([pageSize]entry))
		}
	}
	e := s.at(r)
	bucket := s.bucket(uint32(hash))
	*e = entry{tag: uint32(hash), next: *bucket, key: s.keys.add(shorten(key))}
	*bucket = r
	s.link(r, e)
	s.usage.weight.Add(1)
	s.usage.keys.Add(1)
	s.save(r, state, expires)
}

// remove frees an entry and its memory.
func (s *shard) remove(r ref) {
	e := s.at(r)
	s.unlink(e)
	before := s.bucket(e.tag)
	for *before != r {
		before = &s.at(*before).next
	}
	*before = e.next
	s.keys.remove(e.key)
	if e.algorithm == ratelimit.SlidingLog {
		s.saveLog(r, nil)
	}
	*e = entry{next: s.free}
	s.free = r
	s.usage.weight.Add(-1)
	s.usage.keys.Add(-1)
}
