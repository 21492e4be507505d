package memstore_test

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// What the garbage collector costs when the store holds millions of keys: how long the process stands still (the longest pauses
// are mostly those in which the machine runs something else: compare with those of few keys), and how long a call takes at the
// 99th percentile while it collects without end, beside the time without it. A usual process collects for a small part of the
// time only.
//
//	go test -run '^$' -bench GarbageCollector -benchtime 200000x ./pkg/memstore
func BenchmarkGarbageCollector(b *testing.B) {
	for _, keys := range []int{1000, 5_000_000} {
		b.Run(fmt.Sprintf("%d keys", keys), func(b *testing.B) {
			defer debug.SetGCPercent(debug.SetGCPercent(400))
			store := memstore.New(memstore.Options{MaxKeys: keys + keys/10})
			defer store.Close()
			limit := &ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 1_000_000, Window: time.Hour}
			if err := limit.Check(); err != nil {
				b.Fatal(err)
			}
			one := func() func(i int) {
				charges := []ratelimit.Charge{{Hits: make([]ratelimit.Hit, 1), Results: make([]ratelimit.Result, 1)}}
				key := make([]byte, 0, 64)
				return func(i int) {
					key = fmt.Appendf(key[:0], "ratelimit:edge:user=%08d:3600", i)
					charges[0].Hits[0] = ratelimit.Hit{Key: string(key), Limit: limit, Cost: 1}
					store.Take(b.Context(), charges)
				}
			}
			take := one()
			for i := range keys {
				take(i)
			}
			if held := store.Len(); held < keys*99/100 {
				b.Fatalf("it holds %d of %d keys", held, keys)
			}

			run := func() (p99, p999 float64) {
				took := make([]time.Duration, 0, b.N)
				for i := range b.N {
					began := time.Now()
					take(i * 7919 % keys)
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				micros := func(at int) float64 { return float64(took[len(took)*at/1000].Nanoseconds()) / 1000 }
				return micros(990), micros(999)
			}
			runtime.GC()
			quiet, quietest := run()

			var stop atomic.Bool
			collections, ended := 0, make(chan struct{})
			go func() {
				defer close(ended)
				for ; !stop.Load(); collections++ {
					runtime.GC()
				}
			}()
			before := pauses()
			b.ResetTimer()
			p99, p999 := run()
			b.StopTimer()
			stop.Store(true)
			<-ended
			after := pauses()
			b.ReportMetric(pause(before, after, 0.9)*1000, "ms-p90-pause")
			b.ReportMetric(pause(before, after, 1)*1000, "ms-longest-pause")
			b.ReportMetric(quiet, "us-p99-without")
			b.ReportMetric(p99, "us-p99")
			b.ReportMetric(quietest, "us-p99.9-without")
			b.ReportMetric(p999, "us-p99.9")
			b.ReportMetric(float64(collections), "collections")
		})
	}
}

// pauses is how often the collector has stopped the process for how long, since its start.
func pauses() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	h := sample[0].Value.Float64Histogram()
	return &metrics.Float64Histogram{Counts: slices.Clone(h.Counts), Buckets: slices.Clone(h.Buckets)}
}

// pause is the upper bound of the given part of the pauses between two looks, in seconds; part 1 is the longest.
func pause(before, after *metrics.Float64Histogram, part float64) float64 {
	all := uint64(0)
	for i := range after.Counts {
		all += after.Counts[i] - before.Counts[i]
	}
	seen := uint64(0)
	for i := range after.Counts {
		seen += after.Counts[i] - before.Counts[i]
		if bound := after.Buckets[i+1]; float64(seen) >= part*float64(all) && !math.IsInf(bound, 1) {
			return bound
		}
	}
	return 0
}
