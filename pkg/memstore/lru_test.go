package memstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestEviction(t *testing.T) {
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	expect := func(t *testing.T, s *Store, left map[string]int64) {
		t.Helper()
		for key, want := range left {
			if got := take(t, s, key, l, 0).Remaining; got != want {
				t.Errorf("%d left of %q, want %d", got, key, want)
			}
		}
		check(t, s)
	}
	t.Run("least recently used first", func(t *testing.T) {
		s, _ := open(t, Options{MaxKeys: 3})
		for _, key := range []string{"a", "b", "c", "a", "d"} {
			take(t, s, key, l, 1)
		}
		expect(t, s, map[string]int64{"a": 8, "b": 10, "c": 9, "d": 9})
		if got := s.Stats(); got.Keys != 3 || got.Evictions != 1 || got.Expirations != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a denied hit and a look are uses", func(t *testing.T) {
		s, _ := open(t, Options{MaxKeys: 3})
		take(t, s, "attacker", l, 10)
		take(t, s, "looked at", l, 1)
		take(t, s, "c", l, 1)
		for i := range 100 {
			if r := take(t, s, "attacker", l, 1); r.Allowed {
				t.Fatalf("allowed after %d other keys", i)
			}
			take(t, s, "looked at", l, 0)
			take(t, s, fmt.Sprint("new", i), l, 1)
		}
		expect(t, s, map[string]int64{"attacker": 0, "looked at": 9, "c": 10})
	})
	t.Run("dead ones first", func(t *testing.T) {
		s, clock := open(t, Options{MaxKeys: 3})
		short := limit(t, ratelimit.FixedWindow, 10, time.Second)
		take(t, s, "long", l, 1)
		take(t, s, "short 1", short, 1)
		take(t, s, "short 2", short, 1)
		clock.Advance(time.Minute)
		take(t, s, "b", l, 1)
		take(t, s, "c", l, 1)
		expect(t, s, map[string]int64{"long": 9, "b": 9, "c": 9})
		if got := s.Stats(); got.Evictions != 0 || got.Expirations != 2 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("what is denied or looked at takes no room", func(t *testing.T) {
		s, _ := open(t, Options{MaxKeys: 3})
		zero := limit(t, ratelimit.TokenBucket, 0, time.Hour)
		for i := range 10 {
			take(t, s, fmt.Sprint("zero", i), zero, 1)
			take(t, s, fmt.Sprint("look", i), l, 0)
			take(t, s, fmt.Sprint("back", i), l, -1)
			take(t, s, fmt.Sprint("large", i), l, 11)
		}
		if s.Len() != 0 {
			t.Errorf("%d keys", s.Len())
		}
	})
	t.Run("one key", func(t *testing.T) {
		s, _ := open(t, Options{MaxKeys: 1})
		take(t, s, "a", l, 1)
		take(t, s, "b", l, 1)
		expect(t, s, map[string]int64{"a": 10, "b": 9})
	})
	t.Run("a group larger than the store", func(t *testing.T) {
		s, _ := open(t, Options{MaxKeys: 2})
		c := ratelimit.Charge{Results: make([]ratelimit.Result, 5)}
		for i := range c.Results {
			c.Hits = append(c.Hits, ratelimit.Hit{Key: fmt.Sprint("key", i), Limit: l, Cost: 1})
		}
		for range 3 {
			charges := []ratelimit.Charge{c}
			s.Take(t.Context(), charges)
			for i, r := range charges[0].Results {
				if !r.Allowed {
					t.Errorf("hit %d: %+v", i, r)
				}
			}
			check(t, s)
		}
		if s.Len() != 2 {
			t.Errorf("%d keys", s.Len())
		}
	})
}

// TestNoEvictionBelowTheBound: the bound is the store's, not a shard's, however the keys' hashes fall.
func TestNoEvictionBelowTheBound(t *testing.T) {
	const n = 20_000
	s, _ := open(t, Options{MaxKeys: n})
	l := limit(t, ratelimit.TokenBucket, 10, time.Hour)
	for i := range n {
		take(t, s, fmt.Sprint("key", i), l, 1)
	}
	if got := s.Stats(); got.Keys != n || got.Evictions != 0 {
		t.Errorf("%+v", got)
	}
	for i := range n {
		take(t, s, fmt.Sprint("more", i), l, 1)
	}
	if got := s.Stats(); got.Keys != n || got.Evictions != n {
		t.Errorf("%+v", got)
	}
	check(t, s)
}

func TestBoundWhileMany(t *testing.T) {
	const n = 5000
	s, _ := open(t, Options{MaxKeys: n})
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	log := limit(t, ratelimit.SlidingLog, 100, time.Hour)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range n {
				take(t, s, fmt.Sprint(worker, " ", i), l, 1)
				take(t, s, fmt.Sprint("log", worker, " ", i%50), log, 1)
				if got := s.Len(); got > n+8 {
					t.Errorf("%d keys", got)
					return
				}
			}
		})
	}
	group.Wait()
	check(t, s)
	if got := s.usage.weight.Load(); got > n {
		t.Errorf("a weight of %d", got)
	}
}

// TestLogsAreWeighed: long sliding logs take the room of many keys, so they cannot fill the memory.
func TestLogsAreWeighed(t *testing.T) {
	s, clock := open(t, Options{MaxKeys: 1000})
	l := limit(t, ratelimit.SlidingLog, 2000, time.Hour)
	for i := range 20 {
		for range 2000 {
			clock.Advance(time.Microsecond)
			take(t, s, fmt.Sprint("log", i), l, 1)
		}
	}
	marks := 0
	for i := range s.shards {
		for _, log := range s.shards[i].logs {
			marks += cap(log)
		}
	}
	if most := 1000 * marksPerKey; marks > most || s.Stats().Evictions == 0 {
		t.Errorf("room for %d marks, at most %d may be; %+v", marks, most, s.Stats())
	}
	// They shrink again, and their room is given back.
	clock.Advance(2 * time.Hour)
	s.sweepRound()
	if got := s.usage.weight.Load(); got != 0 {
		t.Errorf("a weight of %d of nothing", got)
	}
	check(t, s)
}
