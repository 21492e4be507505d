package memstore

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// TestModel compares the store, which sweeps and resets in between, with a map of states.
func TestModel(t *testing.T) {
	limits := make([]*ratelimit.Limit, 0, 10)
	for _, algorithm := range ratelimit.Algorithms() {
		limits = append(limits, limit(t, algorithm, 5, time.Second), limit(t, algorithm, 20, 3*time.Second))
	}
	rapid.Check(t, func(r *rapid.T) {
		s, clock := open(t, Options{MaxKeys: rapid.SampledFrom([]int{100, 10_000}).Draw(r, "keys")})
		defer s.Close()
		model := make(map[string]algo.State)
		drawKey := func(n int) string {
			// Keys of all lengths, different for each n and all of one limit, so that none meets another algorithm's state.
			return fmt.Sprintf("%d:%s", n, strings.Repeat("x", 40*n))
		}
		r.Repeat(map[string]func(*rapid.T){
			"take": func(r *rapid.T) {
				first := rapid.IntRange(0, len(limits)-1).Draw(r, "first")
				n := rapid.IntRange(1, 3).Draw(r, "hits")
				c := ratelimit.Charge{Results: make([]ratelimit.Result, n)}
				states := make([]algo.State, n)
				for i := range n {
					k := (first + i) % len(limits)
					c.Hits = append(c.Hits, ratelimit.Hit{Key: drawKey(k), Limit: limits[k], Cost: rapid.Int64Range(-3, 6).Draw(r, "cost"), Partial: i == 1})
					states[i] = model[drawKey(k)]
				}
				want := make([]ratelimit.Result, n)
				algo.Take(c.Hits, states, clock.Now().UnixMicro(), want)
				for i := range n {
					model[c.Hits[i].Key] = states[i]
				}
				charges := []ratelimit.Charge{c}
				s.Take(t.Context(), charges)
				for i := range want {
					if charges[0].Results[i] != want[i] {
						r.Fatalf("%+v, want %+v", charges[0].Results[i], want[i])
					}
				}
			},
			"later": func(r *rapid.T) {
				clock.Advance(time.Duration(rapid.Int64Range(0, 1_500_000).Draw(r, "µs")) * time.Microsecond)
			},
			"sweep": func(*rapid.T) { s.sweepRound() },
			"reset": func(r *rapid.T) {
				key := drawKey(rapid.IntRange(0, len(limits)-1).Draw(r, "key"))
				delete(model, key)
				if err := s.Reset(t.Context(), []string{key}); err != nil {
					r.Fatal(err)
				}
			},
			"": func(*rapid.T) { check(t, s) },
		})
	})
}

// TestGroupsAcrossShards: groups that lock shards in any order neither block each other nor are charged in part.
func TestGroupsAcrossShards(t *testing.T) {
	s, _ := open(t, Options{})
	l := limit(t, ratelimit.FixedWindow, 1_000_000, time.Hour)
	const keys, workers, rounds = 64, 8, 500
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := range rounds {
				charges := make([]ratelimit.Charge, 2)
				for j := range charges {
					c := &charges[j]
					c.Results = make([]ratelimit.Result, 4)
					for k := range c.Results {
						n := (worker*7 + i*13 + j*29 + k*(1+2*(worker%4))) % keys
						c.Hits = append(c.Hits, ratelimit.Hit{Key: fmt.Sprint("key", n), Limit: l, Cost: 1})
					}
				}
				s.Take(t.Context(), charges)
			}
		})
	}
	group.Wait()
	var used int64
	for n := range keys {
		used += l.Count - take(t, s, fmt.Sprint("key", n), l, 0).Remaining
	}
	if want := int64(workers * rounds * 2 * 4); used != want {
		t.Errorf("%d used, want %d", used, want)
	}
	check(t, s)
}

func FuzzKeys(f *testing.F) {
	f.Add("", "a")
	f.Add("ratelimit:user:user-001:60", "ratelimit:user:user-001:6")
	f.Add(strings.Repeat("k", maxKey), strings.Repeat("k", maxKey+1))
	f.Add(strings.Repeat("k", chunkSize), strings.Repeat("k", chunkSize)+"\x00")
	f.Fuzz(func(t *testing.T, a, b string) {
		var k keys
		first := k.add(shorten(a))
		second := k.add(shorten(b))
		if !k.equal(first, shorten(a)) || !k.equal(second, shorten(b)) || k.equal(first, shorten(b)) != (a == b) {
			t.Fatalf("%q and %q are not told apart", a, b)
		}
		k.remove(first)
		third := k.add(shorten(b + "x"))
		if !k.equal(second, shorten(b)) || !k.equal(third, shorten(b+"x")) || k.equal(third, shorten(b)) {
			t.Fatalf("%q was harmed by the removal of %q", b, a)
		}
	})
}

// TestDigestIsNoKey: a key that spells what is kept of a long one is another key.
func TestDigestIsNoKey(t *testing.T) {
	s, _ := open(t, Options{})
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	long := strings.Repeat("k", maxKey+1)
	take(t, s, long, l, 3)
	if left := take(t, s, shorten(long).text, l, 0).Remaining; left != 10 {
		t.Errorf("%d left of the digest's counter", left)
	}
	if left := take(t, s, long, l, 0).Remaining; left != 7 {
		t.Errorf("%d left of the long key's", left)
	}
}
