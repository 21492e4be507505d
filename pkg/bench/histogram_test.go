package bench

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// times are spread over all orders of magnitude.
var times = rapid.Custom(func(t *rapid.T) time.Duration {
	bits := rapid.IntRange(0, maxBits-1).Draw(t, "bits")
	return time.Duration(rapid.Int64Range(0, 1<<bits).Draw(t, "time"))
})

func TestHistogramQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(times, 1, 300).Draw(t, "times")
		h := new(Histogram)
		for _, d := range all {
			h.Record(d)
		}
		sorted := slices.Sorted(slices.Values(all))
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1, rapid.Float64Range(0, 1).Draw(t, "q")} {
			exact := sorted[min(max(int(math.Ceil(q*float64(len(all))))-1, 0), len(all)-1)]
			got := h.Quantile(q)
			if got < exact || float64(got) > float64(exact)*(1+1.0/128) {
				t.Fatalf("quantile %v is %d, exactly %d", q, got, exact)
			}
		}
		if h.Max() != sorted[len(sorted)-1] || h.Count() != uint64(len(all)) {
			t.Fatalf("max %v, count %d; want %v, %d", h.Max(), h.Count(), sorted[len(sorted)-1], len(all))
		}
	})
}

func TestHistogramAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := rapid.SliceOf(times).Draw(t, "first"), rapid.SliceOf(times).Draw(t, "second")
		var a, b, all Histogram
		for _, d := range first {
			a.Record(d)
			all.Record(d)
		}
		for _, d := range second {
			b.Record(d)
			all.Record(d)
		}
		a.Add(&b)
		if a != all {
			t.Fatal("the sum of two histograms is not the histogram of both")
		}
	})
}

// Buckets are adjacent: each value is in one, and the ends rise.
func TestHistogramBuckets(t *testing.T) {
	var before uint64
	for i := range buckets {
		last := bucketEnd(i)
		if i > 0 && (last <= before || bucket(before+1) != i) {
			t.Fatalf("bucket %d ends at %d after %d, and %d is in bucket %d", i, last, before, before+1, bucket(before+1))
		}
		if bucket(last) != i {
			t.Fatalf("the last value %d of bucket %d is in bucket %d", last, i, bucket(last))
		}
		before = last
	}
	if before != maxTime {
		t.Fatalf("the last bucket ends at %d, want %d", before, uint64(maxTime))
	}
}

func TestHistogramBeyondItsRange(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("an empty histogram has a median")
	}
	h.Record(-time.Second)
	h.Record(math.MaxInt64)
	if h.Quantile(0) != 0 || h.Max() != maxTime || h.Quantile(1) != maxTime {
		t.Errorf("least %v, greatest %v, quantile 1 %v", h.Quantile(0), h.Max(), h.Quantile(1))
	}
}

func BenchmarkHistogram(b *testing.B) {
	var h Histogram
	for i := 0; b.Loop(); i++ {
		h.Record(time.Duration(i) * 977)
	}
}
