package algo

import "github.com/weirhq/weir/pkg/ratelimit"

// tokenBucket keeps how much of the bucket is used, in parts of a token (see ratelimit.Limit.Rate): 0 is a full bucket.
// Parts flow back every microsecond, none is lost to rounding.
type tokenBucket struct{}

func (tokenBucket) advance(s *State, l *ratelimit.Limit, now int64) {
	token, perMicro := l.Rate()
	if s.Unit != token {
		// Counted in other parts, because the limit was another: what was used is rounded up to whole tokens.
		s.A, s.Unit = min(ceilDiv(s.A, max(s.Unit, 1)), l.Capacity())*token, token
	}
	s.A = min(s.A, l.Capacity()*token)
	if elapsed := now - s.At; s.A == 0 || elapsed >= ceilDiv(s.A, perMicro) { // compared first, so that no product is above 2^53
		s.A = 0
	} else {
		s.A -= elapsed * perMicro
	}
}

func (tokenBucket) available(s *State, l *ratelimit.Limit, _ int64) int64 {
	return (l.Capacity()*s.Unit - s.A) / s.Unit
}

func (tokenBucket) add(s *State, _ *ratelimit.Limit, _, n int64) int64 {
	if used := ceilDiv(s.A, s.Unit); n <= -used {
		s.A = 0
		return -used
	}
	s.A += n * s.Unit
	return n
}

func (tokenBucket) wait(s *State, l *ratelimit.Limit, _, cost int64) int64 {
	_, perMicro := l.Rate()
	return ceilDiv(s.A-(l.Capacity()-cost)*s.Unit, perMicro)
}

func (tokenBucket) idle(s *State, l *ratelimit.Limit, _ int64) int64 {
	if s.A == 0 {
		return 0
	}
	_, perMicro := l.Rate()
	return ceilDiv(s.A, perMicro)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
