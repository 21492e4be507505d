package algo

import "github.com/weirhq/weir/pkg/ratelimit"

// fixedWindow keeps the number of hits in the window of the last charge. The number stands while that charge lies in the
// current window, so a window whose length or time zone changed keeps what was counted in it.
type fixedWindow struct{}

func (fixedWindow) advance(s *State, l *ratelimit.Limit, now int64) {
	start, end := l.Bounds(now)
	if s.At < start {
		s.A = 0
	}
	s.B = end
}

func (fixedWindow) available(s *State, l *ratelimit.Limit, _ int64) int64 { return l.Count - s.A }

func (fixedWindow) add(s *State, _ *ratelimit.Limit, _, n int64) int64 {
	n = max(n, -s.A)
	s.A += n
	return n
}

func (fixedWindow) wait(s *State, _ *ratelimit.Limit, now, _ int64) int64 { return s.B - now }

func (fixedWindow) idle(s *State, _ *ratelimit.Limit, now int64) int64 { return s.B - now }
