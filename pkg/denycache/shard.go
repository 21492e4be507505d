package denycache

import (
	"strings"
	"sync"
	"sync/atomic"
)

// shards is how many parts the cache has, each with a lock of its own.
const shards = 64

// looked is how many entries are looked at to find one that may be forgotten when there is no room.
const looked = 4

// shard is a part of the cache.
type shard struct {
	// size is that of denials, for those who look for something in an empty shard.
	size atomic.Int64
	// epoch counts what was dropped: an answer that was asked for in an earlier epoch may be from before. Written under mu.
	epoch atomic.Uint64

	mu      sync.RWMutex
	denials map[string]denial
	most    int
}

// find returns what is known of a key, and the epoch. The zero denial is no hit's.
func (s *shard) find(key string) (denial, uint64) {
	epoch := s.epoch.Load()
	if s.size.Load() == 0 {
		return denial{}, epoch
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.denials[key], epoch
}

// remember keeps a denial that was asked for in this epoch, unless something was dropped since.
func (s *shard) remember(key string, epoch uint64, d denial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.epoch.Load() {
		return
	}
	if s.denials == nil {
		s.denials = make(map[string]denial)
	}
	if _, ok := s.denials[key]; !ok {
		if len(s.denials) >= s.most {
			s.makeRoom(d)
		}
		key = strings.Clone(key) // it is the caller's memory
	}
	s.denials[key] = d
	s.size.Store(int64(len(s.denials)))
}

// makeRoom forgets an entry, of a few at random the one whose time is over first.
func (s *shard) makeRoom(now denial) {
	var victim string
	var first denial
	seen := 0
	for key, d := range s.denials {
		if left := d.valid - now.at.Sub(d.at); seen == 0 || left < first.valid-now.at.Sub(first.at) {
			victim, first = key, d
		}
		if seen++; seen == looked {
			break
		}
	}
	delete(s.denials, victim)
}

func (s *shard) drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch.Add(1)
	delete(s.denials, key)
	s.size.Store(int64(len(s.denials)))
}

func (s *shard) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch.Add(1)
	s.denials = nil
	s.size.Store(0)
}

func (s *shard) len() int { return int(s.size.Load()) }
