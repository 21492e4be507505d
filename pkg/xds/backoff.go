package xds

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Backoff is the time from the end of one stream to the next: Initial, and each time Factor times as much up to Max, until a stream
// has brought rules.
type Backoff struct {
	// Initial defaults to 500 ms, Max to 30 s. Factor is at least 1 and defaults to 2.
	Initial, Max time.Duration
	Factor       float64
	// Jitter takes a random time between Initial and the one that is due, so that replicas do not come all at once.
	Jitter bool
}

func (b Backoff) withDefaults() Backoff {
	b.Initial = cmp.Or(b.Initial, 500*time.Millisecond)
	b.Max = max(cmp.Or(b.Max, 30*time.Second), b.Initial)
	if b.Factor < 1 {
		b.Factor = 2
	}
	return b
}

// pauses are the times between streams.
type pauses struct {
	backoff      Backoff
	connectRetry time.Duration
	due          time.Duration // 0: Initial
}

// afterStream is the time to wait after a stream broke. brought tells whether it had brought rules.
func (p *pauses) afterStream(brought bool) time.Duration {
	b := &p.backoff
	if brought || p.due == 0 {
		p.due = b.Initial
	} else {
		p.due = time.Duration(min(float64(p.due)*b.Factor, float64(b.Max)))
	}
	if !b.Jitter {
		return p.due
	}
	if brought { // all replicas lose their streams at once when a control plane ends
		return b.Initial/2 + rand.N(b.Initial/2+1)
	}
	return b.Initial + rand.N(p.due-b.Initial+1)
}

// unreachable is the time to wait after an attempt that found no control plane.
func (p *pauses) unreachable() time.Duration {
	return p.connectRetry/2 + rand.N(p.connectRetry+1)
}
