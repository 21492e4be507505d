package failover

import (
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// benchmarkTake takes one charge at a time, each goroutine of a key of its own.
func benchmarkTake(b *testing.B, store engine.Store) {
	b.Helper()
	limit := newLimit(b, ratelimit.MaxCount)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		charges := []ratelimit.Charge{newCharge(limit, "key:3600", 1)}
		ctx := b.Context()
		for pb.Next() {
			charges[0].Err, charges[0].Degraded = nil, 0
			store.Take(ctx, charges)
			if charges[0].Err != nil {
				b.Error(charges[0].Err)
			}
		}
	})
}

// What an answer costs without a guard: the measure for the others.
func BenchmarkMemoryAlone(b *testing.B) { benchmarkTake(b, newMemory(b)) }

func BenchmarkClosed(b *testing.B) { benchmarkTake(b, newStore(b, newMemory(b), Options{})) }

func benchmarkOpen(b *testing.B, mode ratelimit.FailureMode) {
	b.Helper()
	f := &faulty{}
	s := newStore(b, f, Options{Mode: mode, Local: newMemory(b), ProbeInterval: time.Hour})
	open(b, f, s)
	benchmarkTake(b, s)
}

func BenchmarkOpenAllow(b *testing.B) { benchmarkOpen(b, ratelimit.FailOpen) }
func BenchmarkOpenDeny(b *testing.B)  { benchmarkOpen(b, ratelimit.FailClosed) }
func BenchmarkOpenLocal(b *testing.B) { benchmarkOpen(b, ratelimit.FailLocal) }

func TestOpenAllocatesNothing(t *testing.T) {
	// Of the memory that local decisions use again and again, the race detector makes sync.Pool lose some on purpose.
	most := map[ratelimit.FailureMode]float64{ratelimit.FailLocal: 1}
	for _, mode := range []ratelimit.FailureMode{ratelimit.FailOpen, ratelimit.FailClosed, ratelimit.FailLocal} {
		f := &faulty{}
		s := newStore(t, f, Options{Mode: mode, Local: newMemory(t), ProbeInterval: time.Hour})
		open(t, f, s)
		charges := []ratelimit.Charge{newCharge(newLimit(t, 100), "key:3600", 1)}
		ctx := t.Context()
		if n := testing.AllocsPerRun(1000, func() { s.Take(ctx, charges) }); n > most[mode] {
			t.Errorf("%v: %v allocations", mode, n)
		}
	}
}
