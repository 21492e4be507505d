package memstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestIDsAreBounded(t *testing.T) {
	const most = 320
	s, clock := open(t, Options{MaxIDs: most, IDPeriod: time.Minute})
	l := limit(t, ratelimit.FixedWindow, ratelimit.MaxCount, time.Hour)
	once := func(id string, hits int) {
		c := ratelimit.Charge{ID: id, Results: make([]ratelimit.Result, hits)}
		for i := range hits {
			c.Hits = append(c.Hits, ratelimit.Hit{Key: fmt.Sprint("key", i), Limit: l, Cost: 1})
		}
		s.Take(t.Context(), []ratelimit.Charge{c})
	}
	for i := range 10 * most {
		once(fmt.Sprint("id", i), 1)
		if got := s.Stats().IDs; got > most {
			t.Fatalf("%d IDs", got)
		}
	}
	if got := s.Stats(); got.IDs < most/2 || got.IDEvictions != 10*most-got.IDs {
		t.Errorf("%+v", got)
	}
	check(t, s)
	// A charge of many hits takes the room of many.
	for i := range 10 * most {
		once(fmt.Sprint("group", i), 10)
	}
	if got := s.Stats().IDs; got > most/10 {
		t.Errorf("%d IDs of 10 results each", got)
	}
	once("none", 0)
	check(t, s)

	clock.Advance(time.Minute)
	evictions := s.Stats().IDEvictions
	s.sweepRound()
	if got := s.Stats(); got.IDs != 0 || got.IDEvictions != evictions {
		t.Errorf("%+v after their time", got)
	}
	check(t, s)
}

// TestIDAgainAfterItsTime: a record that is over but was not removed yet makes place for its successor.
func TestIDAgainAfterItsTime(t *testing.T) {
	s, clock := open(t, Options{IDPeriod: time.Minute})
	l := limit(t, ratelimit.FixedWindow, 100, 24*time.Hour)
	for range 5 {
		for i := range 20 * idBatch {
			id := fmt.Sprint("id", i)
			c := ratelimit.Charge{ID: id, Hits: []ratelimit.Hit{{Key: id, Limit: l, Cost: 1}}, Results: make([]ratelimit.Result, 1)}
			charges := []ratelimit.Charge{c, c}
			charges[1].Results = make([]ratelimit.Result, 1)
			charges[1].Hits = []ratelimit.Hit{{Key: id, Limit: l, Cost: 2}}
			s.Take(t.Context(), charges)
			if charges[0].Err != nil || !errors.Is(charges[1].Err, ratelimit.ErrConflict) {
				t.Fatalf("%v, %v", charges[0].Err, charges[1].Err)
			}
		}
		check(t, s)
		clock.Advance(time.Minute)
	}
	for i := range 20 * idBatch {
		if left := take(t, s, fmt.Sprint("id", i), l, 0).Remaining; left != 95 {
			t.Fatalf("id %d: %d left of 100 after 5 charges", i, left)
		}
	}
}
