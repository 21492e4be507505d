package bench

import (
	"math/bits"
	"time"
)

const (
	// subBits sets the histogram's precision: a power of two is split into 2^subBits buckets, so a value is known to one part
	// in 128.
	subBits = 7
	maxBits = 40 // of a value in nanoseconds: 18 minutes
	buckets = (maxBits-subBits)<<subBits + 1<<subBits
	maxTime = 1<<maxBits - 1
)

// Histogram counts times in buckets whose width grows with the value, as HdrHistogram does: whatever is recorded, it takes
// 34 KiB, and a quantile is above the exact one by at most 1/128 of it. Times above 18 minutes count as 18 minutes. The zero
// value is empty. It is not safe for concurrent use.
type Histogram struct {
	counts [buckets]uint64
	count  uint64
	max    uint64
}

// Record adds a time; one below zero counts as zero.
func (h *Histogram) Record(d time.Duration) {
	v := min(uint64(max(d, 0)), maxTime)
	h.counts[bucket(v)]++
	h.count++
	h.max = max(h.max, v)
}

// Add adds all of what the other one has recorded.
func (h *Histogram) Add(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.count += other.count
	h.max = max(h.max, other.max)
}

// Count is the number of times recorded.
func (h *Histogram) Count() uint64 { return h.count }

// Max is the longest time recorded.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max) }

// Quantile is the time that a share q (0 to 1) of all times do not exceed; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := uint64(q * float64(h.count))
	if float64(rank) < q*float64(h.count) {
		rank++
	}
	rank = min(max(rank, 1), h.count)
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return time.Duration(min(bucketEnd(i), h.max))
		}
	}
	return h.Max()
}

// bucket is the index of v's bucket. Values below 2^(subBits+1) have one each.
func bucket(v uint64) int {
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// bucketEnd is the largest value of a bucket.
func bucketEnd(i int) uint64 {
	shift := max(i>>subBits-1, 0)
	return uint64(i-shift<<subBits+1)<<shift - 1
}
