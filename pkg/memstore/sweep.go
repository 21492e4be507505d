package memstore

import (
	"runtime"
	"time"
)

// sweepBatch is how many entries the sweeper visits while it holds a lock: a few microseconds, and some tens of them if
// all are dead.
const sweepBatch = 128

// sweepEvery makes rounds through all keys until the store is closed.
func (s *Store) sweepEvery(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			s.sweepRound()
		}
	}
}

// sweepRound visits every entry once, and the remembered IDs. It goes from shard to shard after each batch, and lets
// others run in between, so that nobody waits for more than a batch.
func (s *Store) sweepRound() {
	s.ids.sweep(s.now().UnixMicro())
	for visited := 0; ; visited += sweepBatch {
		more := false
		for i := range s.shards {
			select {
			case <-s.stop:
				return
			default:
			}
			if s.shards[i].sweepLocked(s.now().UnixMicro(), visited) {
				more = true
			}
			runtime.Gosched()
		}
		if !more {
			return
		}
	}
}

// sweepLocked sweeps a batch unless all entries have been visited in this round, and reports whether it did. It takes the
// lock.
func (s *shard) sweepLocked(now int64, visited int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if visited >= int(s.length) {
		return false
	}
	s.sweep(now, sweepBatch)
	return true
}

// sweep visits the next n entries, removes the dead ones, and returns how many they were.
func (s *shard) sweep(now int64, n int) (dead int) {
	for range min(n, int(s.length)) {
		if s.cursor >= s.length {
			s.cursor = none
		}
		e := s.at(s.cursor)
		if e.algorithm != 0 && e.expires <= now {
			s.remove(s.cursor)
			dead++
		}
		s.cursor++
	}
	if dead > 0 {
		s.usage.expirations.Add(int64(dead))
	}
	return dead
}
