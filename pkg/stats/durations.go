package stats

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// keptDurations is how many durations are sent at most after each interval: a sample of all, each with the same chance.
const keptDurations = 512

// durations are the times that calls took, as far as somebody wants them.
type durations struct {
	observer atomic.Pointer[prometheus.Observer]
	sample   atomic.Pointer[sample]
}

func (d *durations) observe(elapsed time.Duration) {
	if observer := d.observer.Load(); observer != nil {
		(*observer).Observe(elapsed.Seconds())
	}
	if sample := d.sample.Load(); sample != nil {
		sample.add(elapsed)
	}
}

// sample keeps some of the durations of an interval, by reservoir sampling (Vitter 1985, algorithm R).
type sample struct {
	seen atomic.Uint64
	kept [keptDurations]atomic.Int64 // nanoseconds, plus 1: 0 is none
}

func (s *sample) add(elapsed time.Duration) {
	at := s.seen.Add(1) - 1
	if at >= keptDurations {
		if at = rand.Uint64N(at + 1); at >= keptDurations {
			return
		}
	}
	s.kept[at].Store(int64(elapsed) + 1)
}

// all returns what is kept, and the part of all durations that it is.
func (s *sample) all() (kept []time.Duration, rate float64) {
	seen := s.seen.Load()
	for i := range s.kept {
		if d := s.kept[i].Load(); d != 0 {
			kept = append(kept, time.Duration(d-1))
		}
	}
	if seen <= uint64(len(kept)) {
		return kept, 1
	}
	return kept, float64(len(kept)) / float64(seen)
}
