package bench

import (
	"math"
	"slices"
	"testing"
	"time"
)

func newTestPacer(rate float64, seed uint64) *pacer {
	return &pacer{mean: float64(time.Second) / rate, random: random(seed), ended: make(chan struct{})}
}

// The gaps of a Poisson process have the mean 1/rate, the same standard deviation, and e^-1 of them are longer than the mean.
func TestGaps(t *testing.T) {
	const n = 100_000
	p := newTestPacer(1000, 1)
	var sum, squares float64
	long := 0
	for range n {
		gap := float64(p.gap()) / float64(time.Millisecond)
		sum += gap
		squares += gap * gap
		if gap > 1 {
			long++
		}
	}
	mean := sum / n
	deviation := math.Sqrt(squares/n - mean*mean)
	if math.Abs(mean-1) > 0.02 || math.Abs(deviation-1) > 0.03 || math.Abs(float64(long)/n-1/math.E) > 0.01 {
		t.Errorf("mean %v ms, deviation %v ms, %v longer than the mean", mean, deviation, float64(long)/n)
	}
}

func TestGapsBySeed(t *testing.T) {
	gaps := func(seed uint64) (all []int64) {
		p := newTestPacer(1000, seed)
		for range 100 {
			all = append(all, p.gap())
		}
		return all
	}
	if !slices.Equal(gaps(1), gaps(1)) || slices.Equal(gaps(1), gaps(2)) {
		t.Error("the seed does not make the gaps")
	}
}

// What was due and not sent counts with what it has waited.
func TestPacerFinish(t *testing.T) {
	p := newTestPacer(1000, 1)
	close(p.ended)
	var seen tally
	p.finish(int64(time.Second), &seen)
	if seen.unsent < 800 || seen.unsent > 1200 || seen.latency.Count() != seen.unsent {
		t.Errorf("%d calls of about 1000 were due, %d latencies", seen.unsent, seen.latency.Count())
	}
	if half := seen.latency.Quantile(0.5); half < 400*time.Millisecond || half > 600*time.Millisecond {
		t.Errorf("half of them waited %v, want about 500 ms", half)
	}
	p.finish(int64(time.Second), &seen) // nothing is left
	if calls := seen.latency.Count(); calls != seen.unsent {
		t.Errorf("%d latencies for %d calls", calls, seen.unsent)
	}
}
