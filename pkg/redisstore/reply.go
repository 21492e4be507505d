package redisstore

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	numbersPerHit = 5

	conflict = -1 // instead of how often a hit is allowed

	maxNumber = 1 << 53
)

// decode fills the charges' results from the script's reply: how often it is allowed, granted, remaining, retry after and
// reset after for each hit, and after those of a charge with an ID when it was decided. If the reply makes no sense it returns
// an error, and the results mean nothing.
func (r *request) decode(reply []int64) error {
	if len(reply) != r.hits*numbersPerHit+r.ids {
		return unavailable(fmt.Errorf("%w: %d numbers for %d hits", ErrReply, len(reply), r.hits))
	}
	for i := range r.records {
		rec := &r.records[i]
		c := rec.first
		c.err = nil
		for j := range c.hits {
			allowed, granted, numbers := reply[0], reply[1], reply[2:numbersPerHit]
			if allowed < conflict || allowed == conflict && rec.first.idKey == "" || allowed > int64(rec.times) || granted < -maxNumber || granted > maxNumber ||
				min(numbers[0], numbers[1], numbers[2]) < 0 || max(numbers[0], numbers[1], numbers[2]) > maxNumber {
				return unavailable(fmt.Errorf("%w: %v", ErrReply, reply[:numbersPerHit]))
			}
			if allowed == conflict {
				c.err = ratelimit.ErrConflict
			}
			c.results[j] = ratelimit.Result{
				Allowed:    allowed == 1,
				Granted:    granted,
				Remaining:  numbers[0],
				RetryAfter: micros(numbers[1]),
				ResetAfter: micros(numbers[2]),
			}
			if rec.times > 1 {
				if err := rec.share(allowed, granted); err != nil {
					return err
				}
			}
			reply = reply[numbersPerHit:]
		}
		if c.idKey != "" {
			if reply[0] < 0 || reply[0] > maxNumber {
				return unavailable(fmt.Errorf("%w: decided at %d", ErrReply, reply[0]))
			}
			c.decided = reply[0]
			reply = reply[1:]
		}
	}
	return nil
}

// share tells the charges of a record what each would have been told if they had come one after the other: the first ones,
// as many as are allowed, their cost; the next one, if it is partial, what was left; the others nothing. The result of the
// last one is in that of the first. For a bucket it has, as ResetAfter, how many parts of it are used (ratelimit.Limit.Rate),
// because each charge fills it a little more; for the other algorithms the first hit of a moment decides when it is empty.
func (r *record) share(allowed, granted int64) error {
	hit := &r.first.hits[0]
	last := r.first.results[0]
	token, perMicro := hit.Limit.Rate()
	rest := granted - allowed*hit.Cost
	used := last.ResetAfter.Microseconds() - granted*token
	if rest < 0 || rest >= hit.Cost || rest > 0 && !hit.Partial || allowed == int64(r.times) && rest > 0 || used < 0 {
		return unavailable(fmt.Errorf("%w: %d granted of %d x %d, %d allowed", ErrReply, granted, r.times, hit.Cost, allowed))
	}
	left, i := last.Remaining+granted, int64(0) // before the first
	for c := r.first; c != nil; c = c.next {
		result := ratelimit.Result{Allowed: i < allowed, RetryAfter: last.RetryAfter, ResetAfter: last.ResetAfter}
		switch {
		case i < allowed:
			result.Granted, result.RetryAfter = hit.Cost, 0
		case i == allowed:
			result.Granted = rest
		}
		left -= result.Granted
		used += result.Granted * token
		result.Remaining = left
		if perMicro > 0 {
			result.ResetAfter = micros((used + perMicro - 1) / perMicro)
		}
		c.err, c.results[0] = nil, result
		i++
	}
	return nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
