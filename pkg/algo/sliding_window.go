package algo

import (
	"math"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// slidingWindow keeps the hits of the current fixed window (A) and of the one before (B), and counts the latter by the
// share of it that still lies within the last Window, rounded up to whole hits.
type slidingWindow struct{}

func (slidingWindow) advance(s *State, l *ratelimit.Limit, now int64) {
	window := l.Window.Microseconds()
	if s.Unit != window {
		// Counted in windows of another length: all of it is taken as having come with the last charge.
		s.A, s.B, s.Unit = s.A+s.B, 0, window
	}
	start, _ := l.Bounds(now)
	switch {
	case s.At >= start:
	case s.At >= start-window:
		s.A, s.B = 0, s.A
	default:
		s.A, s.B = 0, 0
	}
}

func (slidingWindow) available(s *State, l *ratelimit.Limit, now int64) int64 {
	start, end := l.Bounds(now)
	return l.Count - s.A - share(s.B, end-now, end-start)
}

func (slidingWindow) add(s *State, _ *ratelimit.Limit, _, n int64) int64 {
	n = max(n, -s.A-s.B)
	s.A += n
	if s.A < 0 {
		s.A, s.B = 0, s.B+s.A
	}
	return n
}

func (slidingWindow) wait(s *State, l *ratelimit.Limit, now, cost int64) int64 {
	start, end := l.Bounds(now)
	window := end - start
	if room := l.Count - cost - s.A; room >= 0 {
		return end - now - longest(s.B, room, window)
	}
	// Too many in this window by itself: in the next one they are the hits of the window before.
	return end - now + window - longest(s.A, l.Count-cost, window)
}

func (slidingWindow) idle(s *State, l *ratelimit.Limit, now int64) int64 {
	start, end := l.Bounds(now)
	switch {
	case s.A > 0:
		return end - now + end - start
	case s.B > 0:
		return end - now
	default:
		return 0
	}
}

// share is hits*left/window, rounded up: what hits count for when left of their window's length is still within the last
// window.
//
// It calculates in floating point, in the order that the Redis script does. While hits*window is below 2^53 the product
// is exact, and so is the rounded quotient: one that is not whole differs from a whole number k by at least 1/window,
// which is more than half a unit in the last place of k. Above, the quotient is off by less than 2^-51 of itself, so it
// may be rounded to a whole number that is less than 1/2048 of a hit below it.
func share(hits, left, window int64) int64 {
	return int64(math.Ceil(float64(hits) * float64(left) / float64(window)))
}

// longest is the largest left, up to window, for which share(hits, left, window) <= room. The quotient is off by one at
// most (see share), which the two comparisons mend.
func longest(hits, room, window int64) int64 {
	if hits <= room {
		return window
	}
	left := int64(math.Floor(float64(room) * float64(window) / float64(hits)))
	if share(hits, left, window) > room {
		return left - 1
	}
	if share(hits, left+1, window) <= room {
		return left + 1
	}
	return left
}
