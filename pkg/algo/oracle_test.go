package algo_test

import (
	"math/big"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// oracle counts in the plainest way: every hit that ever came, and fractions without rounding.
type oracle interface {
	left(l *ratelimit.Limit, now int64) int64
	add(l *ratelimit.Limit, now, n int64) // what fits, or what is there to give back
}

// events is the oracle of the windows: it forgets nothing.
type events []int64

func (e *events) left(l *ratelimit.Limit, now int64) int64 {
	window := l.Window.Microseconds()
	start, _ := l.Bounds(now)
	var current, previous, last int64
	for _, at := range *e {
		switch {
		case at >= start:
			current++
		case at >= start-window:
			previous++
		}
		if at > now-window {
			last++
		}
	}
	switch l.Algorithm {
	case ratelimit.FixedWindow:
		return l.Count - current
	case ratelimit.SlidingLog:
		return l.Count - last
	default:
		share := previous * (start + window - now)
		return l.Count - current - (share+window-1)/window
	}
}

func (e *events) add(l *ratelimit.Limit, now, n int64) {
	for range n {
		*e = append(*e, now)
	}
	for ; n < 0 && len(*e) > 0; n++ {
		*e = (*e)[:len(*e)-1]
	}
}

// level is the oracle of the buckets: what is used, as a fraction.
type level struct {
	used big.Rat
	at   int64
}

func (b *level) drain(l *ratelimit.Limit, now int64) *big.Rat {
	drained := new(big.Rat).Mul(big.NewRat(l.Count, l.Window.Microseconds()), big.NewRat(now-b.at, 1))
	used := new(big.Rat).Sub(&b.used, drained)
	if used.Sign() < 0 {
		used.SetInt64(0)
	}
	return used
}

func (b *level) left(l *ratelimit.Limit, now int64) int64 {
	left := new(big.Rat).Sub(big.NewRat(l.Capacity(), 1), b.drain(l, now))
	return new(big.Int).Div(left.Num(), left.Denom()).Int64()
}

func (b *level) add(l *ratelimit.Limit, now, n int64) {
	b.used.Add(b.drain(l, now), big.NewRat(n, 1))
	if b.used.Sign() < 0 {
		b.used.SetInt64(0)
	}
	b.at = now
}

// TestOracle checks that what is left is neither more nor less than the algorithm's definition says.
func TestOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t, drawAlgorithm(t))
		if l.Count > 20 { // the plain way is slow, and the fractions of very large buckets are rounded
			return
		}
		var model oracle = new(events)
		if l.Burst > 0 {
			model = new(level)
		}
		c := counter{now: epoch}
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			hit := drawHit(t, l)
			now := drawNow(t, c.now, l)
			at := max(now, seen(c.state, l))
			before := model.left(l, at)
			want := min(hit.Cost, max(before, 0))
			if want < hit.Cost && !hit.Partial {
				want = 0
			}
			r := c.take(t, hit, now)
			if hit.Cost < 0 {
				want = r.Granted
			}
			if r.Granted != 0 {
				model.add(l, at, r.Granted)
			}
			if r.Granted != want || r.Remaining != model.left(l, at) {
				t.Fatalf("cost %d: granted %d, want %d; %d left, want %d: %+v", hit.Cost, r.Granted, want, r.Remaining, model.left(l, at), *l)
			}
		}
	})
}

// TestEveryAlgorithm names what is missing when an algorithm is added.
func TestEveryAlgorithm(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, algorithm := range ratelimit.Algorithms() {
		if name := algorithm.String() + ".go"; !slices.ContainsFunc(files, func(f os.DirEntry) bool { return f.Name() == name }) {
			t.Errorf("%s is missing", name)
		}
		l := &ratelimit.Limit{Algorithm: algorithm, Count: 1, Window: 1e9}
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		results := make([]ratelimit.Result, 1)
		algo.Take([]ratelimit.Hit{{Limit: l, Cost: 1}}, make([]algo.State, 1), epoch, results)
		if !results[0].Allowed {
			t.Errorf("%v: %+v", algorithm, results[0])
		}
	}
}
