package memstore

import (
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/storetest"
)

var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// open returns a store on a clock that stands still, and whose sweeper does in practice not run.
func open(t testing.TB, options Options) (*Store, *storetest.Clock) {
	t.Helper()
	clock := storetest.NewClock(start)
	options.Now = clock.Now
	if options.SweepInterval == 0 {
		options.SweepInterval = time.Hour
	}
	s := New(options)
	t.Cleanup(s.Close)
	return s, clock
}

func limit(t testing.TB, algorithm ratelimit.Algorithm, count int64, window time.Duration) *ratelimit.Limit {
	t.Helper()
	l := &ratelimit.Limit{Algorithm: algorithm, Count: count, Window: window}
	if algorithm == ratelimit.LeakyBucket {
		l.Burst = count
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	return l
}

// take charges one hit.
func take(t testing.TB, s *Store, key string, l *ratelimit.Limit, cost int64) ratelimit.Result {
	t.Helper()
	charges := []ratelimit.Charge{{Hits: []ratelimit.Hit{{Key: key, Limit: l, Cost: cost}}, Results: make([]ratelimit.Result, 1)}}
	s.Take(t.Context(), charges)
	if charges[0].Err != nil {
		t.Fatal(charges[0].Err)
	}
	return charges[0].Results[0]
}

// check goes through the whole store and reports where its links and sums contradict each other.
func check(t testing.TB, s *Store) {
	t.Helper()
	var keys, weights int64
	for i := range s.shards {
		sh := &s.shards[i]
		inUse, chunks := sh.check(t)
		keys += int64(inUse)
		weights += int64(inUse)
		for _, log := range sh.logs {
			weights += weight(log)
		}
		free := 0
		for n := sh.keys.free; n != 0; n = sh.keys.at(n).next {
			free++
		}
		if sh.keys.length > 0 && chunks+free+1 != int(sh.keys.length) {
			t.Fatalf("shard %d: %d chunks of keys and %d free, of %d", i, chunks, free, sh.keys.length)
		}
	}
	if got := s.usage.keys.Load(); got != keys {
		t.Fatalf("%d keys counted, %d there", got, keys)
	}
	if got := s.usage.weight.Load(); got != weights {
		t.Fatalf("a weight of %d counted, %d there", got, weights)
	}
	records, held := 0, 0
	for i := range s.ids.shards {
		d := &s.ids.shards[i]
		records += len(d.records)
		for _, r := range d.records {
			held += r.weight()
		}
		held -= d.held
	}
	if int64(records) != s.ids.held.Load() || held != 0 {
		t.Fatalf("%d IDs counted, %d there; %d results are not counted", s.ids.held.Load(), records, held)
	}
}

// check returns the number of entries in use and of their keys' chunks.
func (s *shard) check(t testing.TB) (inUse, chunks int) {
	t.Helper()
	older, newer, chained, free, logs := 0, 0, 0, 0, 0
	for r := s.newest(); r != none; r = s.at(r).older {
		older++
		e := s.at(r)
		for n := e.key.first; n != 0; n = s.keys.at(n).next {
			chunks++
		}
		if e.algorithm == ratelimit.SlidingLog {
			logs++
		}
	}
	for r := s.oldest(); r != none; r = s.at(r).newer {
		newer++
	}
	for i := range s.buckets {
		for r := s.buckets[i]; r != none; r = s.at(r).next {
			chained++
			if s.bucket(s.at(r).tag) != &s.buckets[i] || s.at(r).algorithm == 0 {
				t.Fatalf("entry %d is in the wrong bucket or free", r)
			}
		}
	}
	for r := s.free; r != none; r = s.at(r).next {
		free++
		if s.at(r).algorithm != 0 {
			t.Fatalf("entry %d is free and in use", r)
		}
	}
	if older != newer || older != chained || older+free+1 != int(s.length) || logs != len(s.logs) {
		t.Fatalf("%d entries by age, %d the other way, %d in buckets, %d free of %d; %d with a log of %d",
			older, newer, chained, free, s.length, logs, len(s.logs))
	}
	return older, chunks
}
