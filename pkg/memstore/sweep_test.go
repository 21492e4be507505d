package memstore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// TestSweepVisitsFew is the bound on how long the sweeper holds a lock, in entries.
func TestSweepVisitsFew(t *testing.T) {
	s, clock := open(t, Options{MaxKeys: 2000}) // one shard
	l := limit(t, ratelimit.TokenBucket, 10, time.Second)
	const n = 10*sweepBatch + 1
	for i := range n {
		take(t, s, fmt.Sprint("key", i), l, 1)
	}
	clock.Advance(time.Minute)
	sh := &s.shards[0]
	for visited := 0; sh.sweepLocked(clock.Now().UnixMicro(), visited); visited += sweepBatch {
		if left := s.Len(); left < n-visited-sweepBatch {
			t.Fatalf("%d of %d keys were left while the lock was held once", left, n-visited)
		}
	}
	if s.Len() != 0 || s.Stats().Expirations != n {
		t.Errorf("%d keys after a round, %+v", s.Len(), s.Stats())
	}
	check(t, s)
}

func TestSweepTakesOnlyTheDead(t *testing.T) {
	s, clock := open(t, Options{})
	short, long := limit(t, ratelimit.SlidingLog, 10, time.Second), limit(t, ratelimit.LeakyBucket, 10, time.Hour)
	for i := range 5000 {
		take(t, s, fmt.Sprint("short", i), short, 10)
		take(t, s, fmt.Sprint("long", i), long, 1)
	}
	s.sweepRound()
	if s.Len() != 10_000 {
		t.Errorf("%d keys while all live", s.Len())
	}
	clock.Advance(time.Second)
	s.sweepRound()
	if s.Len() != 5000 || s.Stats().Evictions != 0 || s.Stats().Expirations != 5000 {
		t.Errorf("%d keys, %+v", s.Len(), s.Stats())
	}
	check(t, s)
	for i := range 5000 {
		if left := take(t, s, fmt.Sprint("long", i), long, 0).Remaining; left != 9 {
			t.Fatalf("key %d has %d left", i, left)
		}
	}
	// Memory of the dead is used again.
	pages := 0
	for i := range s.shards {
		pages += len(s.shards[i].pages) + len(s.shards[i].keys.pages)
	}
	for i := range 5000 {
		take(t, s, fmt.Sprint("short", i), short, 1)
	}
	for i := range s.shards {
		pages -= len(s.shards[i].pages) + len(s.shards[i].keys.pages)
	}
	if pages != 0 {
		t.Errorf("%d new pages", -pages)
	}
	check(t, s)
}

func TestSweeperRunsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{MaxKeys: 10_000, SweepInterval: 10 * time.Second, IDPeriod: time.Minute})
		l := limit(t, ratelimit.TokenBucket, 10, time.Second)
		for i := range 100 {
			c := ratelimit.Charge{
				ID: fmt.Sprint("id", i), Hits: []ratelimit.Hit{{Key: fmt.Sprint("key", i), Limit: l, Cost: 1}},
				Results: make([]ratelimit.Result, 1),
			}
			s.Take(t.Context(), []ratelimit.Charge{c})
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if s.Len() != 100 {
			t.Errorf("%d keys before the first round", s.Len())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := s.Stats(); got.Keys != 0 || got.IDs != 100 {
			t.Errorf("after the first round: %+v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.Stats(); got.IDs != 0 || got.IDEvictions != 0 {
			t.Errorf("after a minute: %+v", got)
		}
		s.Close()
		s.Close()
		if r := take(t, s, "after close", l, 1); !r.Allowed {
			t.Errorf("after it was closed: %+v", r)
		}
	})
}
