package failover

import (
	"sync"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// maxScaled bounds the scaled limits that are remembered. Above it all are forgotten: limits that callers send with their
// requests may be as many as they like.
const maxScaled = 4 << 10

// scaledLimits remembers limits by their values: a limit's address says nothing once a table has been replaced, or if it is
// a caller's memory. The zero value is ready to use.
type scaledLimits struct {
	mu     sync.RWMutex
	limits map[ratelimit.Limit]*ratelimit.Limit
}

// scaled returns limit smaller by fraction. It keeps nothing of the limit's name, which may be a caller's memory.
func (s *scaledLimits) scaled(limit *ratelimit.Limit, fraction float64) *ratelimit.Limit {
	key := *limit
	key.Name = ""
	s.mu.RLock()
	found := s.limits[key]
	s.mu.RUnlock()
	if found != nil {
		return found
	}
	smaller := scale(key, fraction)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limits == nil || len(s.limits) >= maxScaled {
		s.limits = make(map[ratelimit.Limit]*ratelimit.Limit)
	}
	s.limits[key] = &smaller
	return &smaller
}

// scale returns limit with its count and burst multiplied by fraction, rounded down, but at least 1 where they are. It
// never allows more than limit does.
func scale(limit ratelimit.Limit, fraction float64) ratelimit.Limit {
	limit.Count = share(limit.Count, fraction)
	limit.Burst = share(limit.Burst, fraction)
	limit.Lease = ratelimit.Lease{} // nothing is taken ahead of a local counter
	// A smaller count may need finer parts of a token than a bucket of this size can hold. A bucket of one always can.
	for limit.Check() != nil && limit.Burst > 1 {
		limit.Burst = max(limit.Burst/2, 1)
	}
	return limit
}

func share(n int64, fraction float64) int64 {
	if n == 0 {
		return 0
	}
	return max(int64(float64(n)*fraction), 1)
}
