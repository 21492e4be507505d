package denycache

import (
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// denial is what the store said of a counter when it denied a hit.
type denial struct {
	limit *ratelimit.Limit
	cost  int64
	at    time.Time     // before the store was asked
	valid time.Duration // since then
	// As told by the store.
	retryAfter, resetAfter time.Duration
}

// certain is how long the same hit is denied for certain, and nothing of it granted. 0 if that is not known.
func certain(hit *ratelimit.Hit, result *ratelimit.Result) time.Duration {
	limit := hit.Limit
	token, perMicro := limit.Rate()
	switch {
	case result.Remaining > 0:
		return 0
	case limit.Algorithm == ratelimit.FixedWindow:
		return result.RetryAfter // nothing comes back before the window ends
	case hit.Cost > limit.Capacity():
		return 0
	case hit.Cost == 1:
		return result.RetryAfter
	case perMicro > 0:
		// A bucket has room for the first hit before it has for all, by the time in which the others flow back.
		others := (hit.Cost-1)*token + perMicro - 1
		return result.RetryAfter - time.Duration(others/perMicro)*time.Microsecond
	default:
		return 0
	}
}
