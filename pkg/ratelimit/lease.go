package ratelimit

import (
	"fmt"
	"math/bits"
	"time"
)

// Bounds of a Lease.
const (
	MaxLease    = 1 << 20
	MinLeaseTTL = 10 * time.Millisecond
	MaxLeaseTTL = 5 * time.Second
)

// Lease lets a replica take hits of a busy counter ahead, and hand them out without asking the store: see package lease. The
// zero value is none.
//
// Hits are counted when they are taken, up to TTL before they are spent. FixedWindow and SlidingWindow stay exact because a
// lease ends with its window. A TokenBucket stays exact because it holds as much less as flows in during TTL (Limit.Capacity).
// SlidingLog and LeakyBucket look at the instant of each hit, and cannot have one.
type Lease struct {
	Max int64         // most hits that are taken ahead for one counter by one replica, 2 to MaxLease
	TTL time.Duration // how long they may be spent, MinLeaseTTL to MaxLeaseTTL, in whole microseconds, at most the window
}

// String writes the lease for people: "leases of 100 for 200ms".
func (l Lease) String() string { return fmt.Sprintf("leases of %d for %v", l.Max, l.TTL) }

// lease checks l.Lease and computes what a bucket keeps back for it.
func (l *Limit) lease(fault func(format string, args ...any) error) error {
	l.reserve = 0
	switch lease := l.Lease; {
	case lease == Lease{}:
		return nil
	case l.Algorithm == SlidingLog || l.Algorithm == LeakyBucket:
		return fault("%s looks at the instant of each hit, which hits taken ahead do not have: use token_bucket, fixed_window or sliding_window, or remove lease",
			l.Algorithm)
	case lease.Max < 2 || lease.Max > MaxLease:
		return fault("lease.max %d is out of range: write 2 to %d", lease.Max, MaxLease)
	case lease.TTL < MinLeaseTTL || lease.TTL > MaxLeaseTTL || lease.TTL%time.Microsecond != 0:
		return fault("lease.ttl %v is out of range: write %v to %v", lease.TTL, MinLeaseTTL, MaxLeaseTTL)
	case lease.TTL > l.Window:
		return fault("lease.ttl %v is longer than the window %v: write a shorter one", lease.TTL, l.Window)
	case l.Algorithm != TokenBucket && lease.Max > l.Count:
		return fault("lease.max %d is above the limit %d: write at most that, better a tenth", lease.Max, l.Count)
	case l.Algorithm != TokenBucket:
		return nil
	}
	high, low := bits.Mul64(uint64(l.Count), uint64(l.Lease.TTL.Microseconds()))
	flows, rest := bits.Div64(high, low, uint64(l.Window.Microseconds())) // high is less: the TTL is not longer than the window
	if rest > 0 {
		flows++
	}
	if capacity := l.Burst - int64(flows); capacity < l.Lease.Max {
		return fault("burst %d is less than lease.max %d and the %d that flow in during lease.ttl: write a larger burst, or a smaller lease.max or lease.ttl",
			l.Burst, l.Lease.Max, flows)
	}
	l.reserve = int64(flows)
	return nil
}
