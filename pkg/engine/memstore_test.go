package engine_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

func onMemory(t testing.TB, definitions ...rules.Definition) *engine.Limiter {
	t.Helper()
	now := time.Now()
	store := memstore.New(memstore.Options{Now: func() time.Time { return now }})
	t.Cleanup(store.Close)
	l := engine.New(store, engine.Options{})
	l.SetTable(edge(t, definitions...))
	return l
}

// Whatever the concurrency, exactly the limit is admitted, with each algorithm and with several limits at once.
func TestExactUnderConcurrency(t *testing.T) {
	const callers, each, limit = 30, 100, 1000
	limits := map[string][]ratelimit.Limit{
		"several": {
			{Algorithm: ratelimit.FixedWindow, Count: limit, Window: time.Hour},
			{Algorithm: ratelimit.FixedWindow, Count: limit + 500, Window: 24 * time.Hour},
		},
	}
	for _, algorithm := range ratelimit.Algorithms() {
		l := ratelimit.Limit{Algorithm: algorithm, Count: limit, Window: time.Hour}
		if algorithm == ratelimit.LeakyBucket {
			l.Burst = limit
		}
		limits[algorithm.String()] = []ratelimit.Limit{l}
	}
	for name, limits := range limits {
		l := onMemory(t, rules.Definition{Key: "user", Limits: limits})
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				var b engine.Batch
				for range each / 4 {
					b.Reset()
					for range 4 {
						b.Requests = append(b.Requests, asking(entry("user", "a")))
					}
					l.Decide(t.Context(), &b)
					for i := range b.Decisions {
						if !b.Decisions[i].Over {
							allowed.Add(1)
						}
					}
				}
			})
		}
		wg.Wait()
		if got := allowed.Load(); got != limit {
			t.Errorf("%s: %d of %d allowed at a limit of %d", name, got, callers*each, limit)
		}
	}
}

// An atomic request over two counters never charges one of them alone.
func TestAtomicUnderConcurrency(t *testing.T) {
	l := onMemory(t, rules.Definition{Key: "a", Limits: perMinute(500)}, rules.Definition{Key: "b", Limits: perMinute(700)})
	request := asking(entry("a", "x"), entry("b", "x"))
	request.Atomic = true
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				l.Check(t.Context(), request, false)
			}
		})
	}
	wg.Wait()
	expect(t, "1,000 callers", l.Check(t.Context(), asking(entry("a", "x"), entry("b", "x")), true), "over denied!:0+0/500 allowed:0+200/700")
}

// A client that reaches one counter with and without an override cannot make either begin anew.
func TestOverridesOfAnotherAlgorithm(t *testing.T) {
	l := onMemory(t, rules.Definition{Key: "user", Limits: []ratelimit.Limit{{Algorithm: ratelimit.TokenBucket, Count: 5, Window: time.Minute}}})
	limit := fixed(7, time.Minute)
	override := entry("user", "a")
	override.Limit = &limit
	plain, overridden := 0, 0
	for range 20 {
		if !l.Check(t.Context(), asking(entry("user", "a")), false).Over {
			plain++
		}
		if !l.Check(t.Context(), asking(override), false).Over {
			overridden++
		}
	}
	if plain != 5 || overridden != 7 {
		t.Errorf("taking turns, %d of 5 and %d of 7 were allowed", plain, overridden)
	}
}

func BenchmarkDecide(b *testing.B) {
	const keys = 100_000
	users := make([]string, keys)
	for i := range users {
		users[i] = fmt.Sprintf("203.0.%d.%d", i>>8, i&255) + strconv.Itoa(i)
	}
	definitions := []rules.Definition{
		{Key: "remote_address", Limits: []ratelimit.Limit{{Algorithm: ratelimit.TokenBucket, Count: 100, Window: time.Minute}}},
		{Key: "window", Limits: []ratelimit.Limit{fixed(100, time.Minute)}},
		{Key: "tenant", Limits: []ratelimit.Limit{fixed(1<<30, time.Minute)}},
	}
	for _, c := range []struct {
		name        string
		descriptors func(i int) []ratelimit.Descriptor
		batch       int
	}{
		{"uniform", func(i int) []ratelimit.Descriptor {
			return []ratelimit.Descriptor{entry("remote_address", users[i%keys])}
		}, 1},
		{"uniform fixed_window", func(i int) []ratelimit.Descriptor { return []ratelimit.Descriptor{entry("window", users[i%keys])} }, 1},
		{"uniform in batches of 16", func(i int) []ratelimit.Descriptor {
			return []ratelimit.Descriptor{entry("remote_address", users[i%keys])}
		}, 16},
		{"three descriptors", func(i int) []ratelimit.Descriptor {
			return []ratelimit.Descriptor{entry("tenant", "t"), entry("remote_address", users[i%keys]), entry("window", users[i*7%keys])}
		}, 1},
		{"unmatched", func(int) []ratelimit.Descriptor { return []ratelimit.Descriptor{entry("x", "y")} }, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := onMemory(b, definitions...)
			requests := make([]ratelimit.Request, keys)
			for i := range requests {
				requests[i] = asking(c.descriptors(i)...)
			}
			var batch engine.Batch
			for i := range requests { // every key is there before it counts
				batch.Reset()
				batch.Requests = append(batch.Requests, requests[i])
				l.Decide(b.Context(), &batch)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				batch.Reset()
				for range c.batch {
					batch.Requests = append(batch.Requests, requests[i%keys])
					i++
				}
				l.Decide(b.Context(), &batch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.batch), "ns/decision")
		})
	}
}
