package algo_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/ratelimit"
)

func BenchmarkTake(b *testing.B) {
	for _, algorithm := range ratelimit.Algorithms() {
		l := &ratelimit.Limit{Algorithm: algorithm, Count: 1000, Window: time.Minute}
		if err := l.Check(); err != nil {
			b.Fatal(err)
		}
		hits, states, results := []ratelimit.Hit{{Limit: l, Cost: 1}}, make([]algo.State, 1), make([]ratelimit.Result, 1)
		b.Run(algorithm.String()+"/allowed", func(b *testing.B) {
			b.ReportAllocs()
			for now := epoch; b.Loop(); now += 60_000 {
				algo.Take(hits, states, now, results)
			}
			if !results[0].Allowed {
				b.Fatalf("%+v", results[0])
			}
		})
		b.Run(algorithm.String()+"/denied", func(b *testing.B) {
			b.ReportAllocs()
			now := epoch + 30_000_000
			states[0] = algo.State{}
			for results[0].Allowed = true; results[0].Allowed; now++ {
				algo.Take(hits, states, now, results)
			}
			for b.Loop() {
				algo.Take(hits, states, now, results)
			}
			if results[0].Allowed {
				b.Fatalf("%+v", results[0])
			}
		})
	}
}
