package memstore

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const benchKeys = 1_000_000

// filled returns a store with n keys, for which the clock stands still.
func filled(b *testing.B, l *ratelimit.Limit, n int) (*Store, *filler) {
	b.Helper()
	s, _ := open(b, Options{MaxKeys: n})
	f := newFiller(l)
	f.fill(b, s, 0, n)
	return s, f
}

// BenchmarkTake measures a call with one hit, by any of a million keys where there are many.
func BenchmarkTake(b *testing.B) {
	l := limit(b, ratelimit.TokenBucket, ratelimit.MaxCount>>20, time.Hour)
	s, f := filled(b, l, benchKeys)
	ctx := b.Context()
	b.Run("one key", func(b *testing.B) {
		b.ReportAllocs()
		f.charges[0].Hits[0].Key = f.key(0)
		for b.Loop() {
			s.Take(ctx, f.charges)
		}
	})
	b.Run("any key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.charges[0].Hits[0].Key = f.key(rand.IntN(benchKeys))
			s.Take(ctx, f.charges)
		}
	})
	b.Run("over the limit", func(b *testing.B) {
		b.ReportAllocs()
		f.charges[0].Hits[0].Key, f.charges[0].Hits[0].Cost = f.key(0), ratelimit.MaxCost
		for b.Loop() {
			s.Take(ctx, f.charges)
		}
		f.charges[0].Hits[0].Cost = 1
	})
	b.Run("insert and evict", func(b *testing.B) {
		b.ReportAllocs()
		i := benchKeys
		for b.Loop() {
			f.charges[0].Hits[0].Key = f.key(i)
			s.Take(ctx, f.charges)
			i++
		}
	})
	b.Run("any key, parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			f := newFiller(l)
			for pb.Next() {
				f.charges[0].Hits[0].Key = f.key(rand.IntN(benchKeys))
				s.Take(ctx, f.charges)
			}
		})
	})
	b.Run("one key, parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			f := newFiller(l)
			f.charges[0].Hits[0].Key = f.key(0)
			for pb.Next() {
				s.Take(ctx, f.charges)
			}
		})
	})
}

// BenchmarkGroup measures a charge of three hits on keys of three shards, most of the time.
func BenchmarkGroup(b *testing.B) {
	s, _ := open(b, Options{})
	c := ratelimit.Charge{Results: make([]ratelimit.Result, 3)}
	for i, algorithm := range []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.FixedWindow, ratelimit.SlidingWindow} {
		l := limit(b, algorithm, ratelimit.MaxCount>>20, time.Hour)
		c.Hits = append(c.Hits, ratelimit.Hit{Key: fmt.Sprint("ratelimit:user:user-001:", i), Limit: l, Cost: 1})
	}
	charges := []ratelimit.Charge{c}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		s.Take(ctx, charges)
	}
}

// BenchmarkSweep measures a round over a million keys, and for how long it held a lock. The longest hold is as much the
// scheduler's as the sweep's where the processors are busy; one in a thousand is the sweep's.
func BenchmarkSweep(b *testing.B) {
	for _, dead := range []bool{false, true} {
		b.Run(fmt.Sprintf("dead=%t", dead), func(b *testing.B) {
			var holds []time.Duration
			for b.Loop() {
				b.StopTimer()
				s, f := filled(b, limit(b, ratelimit.TokenBucket, 100, time.Hour), benchKeys)
				now := f.charges[0].Results[0].ResetAfter.Microseconds() + start.UnixMicro()
				if !dead {
					now--
				}
				b.StartTimer()
				for visited := 0; ; visited += sweepBatch {
					more := false
					for i := range s.shards {
						began := time.Now()
						if s.shards[i].sweepLocked(now, visited) {
							more = true
						}
						holds = append(holds, time.Since(began))
					}
					if !more {
						break
					}
				}
				b.StopTimer()
				if dead != (s.Len() == 0) {
					b.Fatalf("%d keys left", s.Len())
				}
				s.Close()
				b.StartTimer()
			}
			slices.Sort(holds)
			b.ReportMetric(float64(holds[len(holds)/2].Nanoseconds())/1e3, "µs-median-hold")
			b.ReportMetric(float64(holds[len(holds)*999/1000].Nanoseconds())/1e3, "µs-p99.9-hold")
			b.ReportMetric(float64(holds[len(holds)-1].Nanoseconds())/1e3, "µs-longest-hold")
		})
	}
}

// BenchmarkCollection measures what keys cost the garbage collector: the time of a collection, and its pauses.
func BenchmarkCollection(b *testing.B) {
	for _, n := range []int{0, 5 * benchKeys} {
		b.Run(fmt.Sprint(n, " keys"), func(b *testing.B) { collect(b, n) })
	}
}

func collect(b *testing.B, n int) {
	s, _ := filled(b, limit(b, ratelimit.TokenBucket, 100, time.Hour), n)
	var stats debug.GCStats
	debug.ReadGCStats(&stats)
	before := stats.NumGC
	for b.Loop() {
		runtime.GC()
	}
	debug.ReadGCStats(&stats)
	pauses := stats.Pause[:min(int(stats.NumGC-before), len(stats.Pause))]
	slices.Sort(pauses)
	b.ReportMetric(float64(pauses[len(pauses)/2].Nanoseconds())/1e3, "µs-median-pause")
	b.ReportMetric(float64(pauses[len(pauses)-1].Nanoseconds())/1e3, "µs-longest-pause")
	runtime.KeepAlive(s)
}
