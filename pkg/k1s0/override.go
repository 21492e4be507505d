package k1s0

import (
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rulestore"
)

// sentLimit is a limit that a descriptor brings along, as it is sent: for gateways whose limits stand in their own
// configuration.
type sentLimit struct {
	name, algorithm, kind, calendar string
	count, burst, windowMS          int64
}

// override reads the limit that the field path holds. What is left out is what it is in a rule: a token bucket, for protection. It
// is nil if there is a fault.
func (f *faults) override(path string, sent sentLimit) *ratelimit.Limit {
	before := len(*f)
	limit := &ratelimit.Limit{Name: sent.name, Count: sent.count, Burst: sent.burst, Algorithm: ratelimit.TokenBucket}
	f.printable(path+".name", sent.name, rulestore.MaxNameLength)
	if sent.algorithm != "" {
		limit.Algorithm = f.algorithm(path+".algorithm", sent.algorithm)
	}
	switch sent.kind {
	case "", ratelimit.Protection.String():
	case ratelimit.Quota.String():
		limit.Kind = ratelimit.Quota
	default:
		f.add(path+".kind", "must be one of: %s, %s", ratelimit.Protection, ratelimit.Quota)
	}
	if sent.count < 0 || sent.count > ratelimit.MaxCount {
		f.add(path+".limit", "must be from 0 to %d", int64(ratelimit.MaxCount))
	}
	if sent.burst < 0 || sent.burst > ratelimit.MaxCount {
		f.add(path+".burst", "must be from 0 to %d", int64(ratelimit.MaxCount))
	}
	switch sent.calendar {
	case "":
		const longest = int64(ratelimit.MaxWindow / time.Millisecond)
		if sent.windowMS < 1 || sent.windowMS > longest {
			f.add(path+".window_ms", "must be from 1 to %d, or left out with a calendar", longest)
		} else {
			limit.Window = time.Duration(sent.windowMS) * time.Millisecond
		}
	case "month":
		limit.Calendar = ratelimit.CalendarMonth
	case "year":
		limit.Calendar = ratelimit.CalendarYear
	default:
		f.add(path+".calendar", "must be month or year, or left out for a window of fixed length")
	}
	if len(*f) == before {
		f.limit(path+".", *limit)
	}
	if len(*f) > before {
		return nil
	}
	return limit
}
