package redisstore

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	numbersPerHit = 5

	verdictDenied   = 0
	verdictAllowed  = 1
	verdictConflict = 2

	maxNumber = 1 << 53
)

// decode fills the charges' results from the script's reply: verdict, granted, remaining, retry after and reset after for
// each hit. If the reply makes no sense it returns an error, and the results mean nothing.
func decode(reply []int64, charges []*ratelimit.Charge) error {
	want := 0
	for _, c := range charges {
		want += len(c.Hits)
	}
	if len(reply) != want*numbersPerHit {
		return unavailable(fmt.Errorf("%w: %d numbers for %d hits", ErrReply, len(reply), want))
	}
	for _, c := range charges {
		for i := range c.Hits {
			verdict, granted, numbers := reply[0], reply[1], reply[2:numbersPerHit]
			if verdict < verdictDenied || verdict > verdictConflict || granted < -maxNumber || granted > maxNumber ||
				min(numbers[0], numbers[1], numbers[2]) < 0 || max(numbers[0], numbers[1], numbers[2]) > maxNumber {
				return unavailable(fmt.Errorf("%w: %v", ErrReply, reply[:numbersPerHit]))
			}
			if verdict == verdictConflict {
				c.Err = ratelimit.ErrConflict
			}
			c.Results[i] = ratelimit.Result{
				Allowed:    verdict == verdictAllowed,
				Granted:    granted,
				Remaining:  numbers[0],
				RetryAfter: time.Duration(numbers[1]) * time.Microsecond,
				ResetAfter: time.Duration(numbers[2]) * time.Microsecond,
			}
			reply = reply[numbersPerHit:]
		}
	}
	return nil
}
