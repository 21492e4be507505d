package envoy

import (
	"math"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const day = 24 * time.Hour

// units are those of RateLimitResponse.RateLimit.Unit with their numbers, the longest first. envoy.type.v3.RateLimitUnit,
// which requests use, has the same numbers as far as it goes; it has no week.
var units = [...]struct {
	number int32
	length time.Duration
}{
	{6, 365 * day},
	{5, 30 * day},
	{7, 7 * day},
	{4, day},
	{3, time.Hour},
	{2, time.Minute},
	{1, time.Second},
}

const (
	second = 1
	month  = 5
	year   = 6
)

// unitLength returns 0 for a number that is no unit.
func unitLength(number int32) time.Duration {
	for i := range units {
		if units[i].number == number {
			return units[i].length
		}
	}
	return 0
}

// unitOf writes a window as a number of units, the longest that fit a whole number of times. The protocol knows no part of
// a second: a window is rounded up to whole ones, so that what a client is told promises less rather than more.
func unitOf(limit *ratelimit.Limit) (number int32, multiplier uint32) {
	switch limit.Calendar {
	case ratelimit.CalendarMonth:
		return month, 1
	case ratelimit.CalendarYear:
		return year, 1
	case ratelimit.CalendarNone:
	}
	for i := range units {
		if length := units[i].length; limit.Window >= length && limit.Window%length == 0 {
			return units[i].number, uint32(min(int64(limit.Window/length), math.MaxUint32))
		}
	}
	return second, uint32(wholeSeconds(limit.Window))
}

// wholeSeconds rounds up, at least 1.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
