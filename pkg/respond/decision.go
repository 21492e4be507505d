package respond

import (
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Decision is what is to be told. It is only read, and nothing of it is kept.
type Decision struct {
	// Denied tells that the request does not go on. It brings Retry-After.
	Denied bool
	// Cause is why it was denied; it chooses the problem type. The zero value is a limit that was reached.
	Cause Cause
	// Limits are those that the request was counted against, in the order of the rules; empty if there were none.
	Limits []Limit
}

// Cause is why a request was denied.
type Cause uint8

// The causes, one for each problem type of the IETF draft.
const (
	LimitReached    Cause = iota // a limit has nothing left
	ReducedCapacity              // the store could not decide, and the rule denies then
	Refused                      // a rule denies whatever the count
)

// Limit is one limit as a client may see it.
type Limit struct {
	// Name of the limit or of its rule; empty is shown as "default". Any bytes: see AppendName.
	Name string
	// Count per Window is the quota. Negative counts are shown as 0.
	Count  int64
	Window time.Duration
	// Burst is the size of a bucket where it differs from Count; 0 is not shown.
	Burst int64
	// Remaining is what is left, in whole units.
	Remaining int64
	// ResetAfter is how long until the limit is as if never used. RetryAfter is how long until the denied request would be
	// allowed; it counts only if Denied.
	ResetAfter, RetryAfter time.Duration
	Kind                   ratelimit.Kind
	// Denied tells that this limit is why the request is denied. A limit in shadow mode is never Denied.
	Denied bool
	// Unit is what is counted, in the words of the draft's registry of quota units ("content-bytes"); empty: requests.
	Unit string
	// Partition, if not empty, is told to the client as the draft's partition key. It must not be a secret or an identity;
	// longer than MaxPartition bytes it is left out.
	Partition string
}

// NewLimit describes l and what the store said of it. name is used where the limit has no name of its own. The limit is
// Denied if the store did not allow it; who does not enforce it sets Denied to false.
func NewLimit(l *ratelimit.Limit, name string, r ratelimit.Result) Limit {
	if l.Name != "" {
		name = l.Name
	}
	shown := Limit{
		Name: name, Count: l.Count, Window: l.Window, Remaining: r.Remaining,
		ResetAfter: r.ResetAfter, RetryAfter: r.RetryAfter, Kind: l.Kind, Denied: !r.Allowed,
	}
	if l.Burst != l.Count {
		shown.Burst = l.Burst
	}
	return shown
}

// Tightest returns the index of the limit that binds the client most, or -1 without limits: a denied one before the
// others, and of several denied ones that which takes longest to allow the request; else the one with the smallest
// Remaining, and of equals that which takes longest to reset, then the first.
func (d *Decision) Tightest() int {
	best := -1
	for i := range d.Limits {
		if best < 0 || tighter(&d.Limits[i], &d.Limits[best]) {
			best = i
		}
	}
	return best
}

func tighter(a, b *Limit) bool {
	switch {
	case a.Denied != b.Denied:
		return a.Denied
	case a.Denied && a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	default:
		return a.ResetAfter > b.ResetAfter
	}
}

// RetryAfter is how many seconds a client should wait, as Retry-After says it: until every denied limit would allow the
// request, rounded up, at least 1. 0 if the decision is not a denial, or is one that waiting does not change.
func (d *Decision) RetryAfter() int64 {
	if !d.Denied || d.Cause == Refused {
		return 0
	}
	var longest time.Duration
	for i := range d.Limits {
		if d.Limits[i].Denied {
			longest = max(longest, d.Limits[i].RetryAfter)
		}
	}
	return max(1, ceilSeconds(longest))
}

// wait is the time in whole seconds for which the client has no more than Remaining: until the request would be allowed
// if it was denied, so that it names the same moment as Retry-After; else until the reset.
func (l *Limit) wait() int64 {
	if l.Denied {
		return max(1, ceilSeconds(l.RetryAfter))
	}
	return ceilSeconds(l.ResetAfter)
}

// windowSeconds rounds up, at least 1: no style can express less than a second, and a longer window promises less.
func (l *Limit) windowSeconds() int64 { return max(1, ceilSeconds(l.Window)) }

// ceilSeconds rounds up to whole seconds; negative durations are 0.
func ceilSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	seconds := int64(d / time.Second)
	if d%time.Second != 0 {
		seconds++
	}
	return seconds
}
