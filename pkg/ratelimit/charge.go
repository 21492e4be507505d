package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrConflict is a charge's error when its ID was used before for other hits.
var ErrConflict = errors.New("the request id was used before for a different request")

// ErrCancelled is a charge's error when it was left out because it was cancelled: nothing was charged. It wraps context.Canceled.
var ErrCancelled = fmt.Errorf("nobody waits for the answer: %w", context.Canceled)

// CallersOwn reports whether a charge's error is its caller's own, and so says nothing of the store: ErrConflict, ErrLimit or
// ErrCancelled.
func CallersOwn(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrLimit) || errors.Is(err, ErrCancelled)
}

// Charge is one all-or-nothing group: every hit is allowed and charged, or none is charged.
//
// A store fills Results, Degraded, Cached and Err in place. It keeps nothing of a charge after it has returned: keys are memory
// that the caller uses again.
type Charge struct {
	// ID, if not empty, is charged once for all charges with this ID and these hits: the first one's results are repeated to
	// the others for the store's idempotency period. The same ID with other hits fails with ErrConflict.
	ID   string
	Hits []Hit
	// Results has one element per hit, provided by the caller.
	Results []Result
	// Cancelled, if not nil, turns true when nobody waits for the answer any more, which may be at any time. A store that keeps
	// charges waiting before it sends them asks at the last moment: it leaves out those that are cancelled by then, which fail
	// with ErrCancelled. It does not ask after it has returned.
	Cancelled *atomic.Bool
	// OnFailure says what a guarding store answers when the store behind it cannot decide. 0: the server's setting.
	OnFailure FailureMode
	// Degraded tells that the answer is not the store's: which failure mode gave it.
	Degraded FailureMode
	// Cached tells that the store was not asked: its counter is known to be over the limit.
	Cached bool
	// At is when a charge with an ID was decided, in microseconds since the Unix epoch by the store's clock: for one that
	// repeats an earlier one's results, when that was. 0 for other charges, and where the store cannot tell.
	At int64
	// Err is set when the store could not decide this charge; Results mean nothing then.
	Err error
}

// Hit is one counter's part in a charge.
type Hit struct {
	// Key names the counter. Its part before the last ':' is what all limits of one descriptor have in common.
	Key   string
	Limit *Limit // checked; shared by many hits, never changed
	// Cost is what is charged. 0 looks, negative gives back, never above the limit.
	Cost int64
	// Partial grants what is there, up to Cost: a charge that finds less than its cost takes what is left and is still
	// denied. It counts only for a hit that is alone in its charge; several hits are all or nothing.
	Partial bool
}

// Result is what a store says of one hit.
//
// A hit of cost N > 0 is allowed if N are left and the other hits of its charge are allowed too. When it is denied only
// because of another hit of the charge, Allowed is true for the hit that would have been allowed by itself, Granted is 0
// and nothing is charged. A look (cost 0) is allowed while a hit of cost 1 would be. Giving back is always allowed.
type Result struct {
	Allowed bool
	// Granted is what was charged: Cost, or 0, or something between for a partial hit; negative for what was given back.
	Granted int64
	// Remaining is what is left after the charge, in whole hits, rounded down, never negative.
	Remaining int64
	// RetryAfter is how long until this hit would be allowed if nobody else came; a look counts as cost 1. 0 if allowed; for
	// a cost that never fits, the time until nothing is used.
	RetryAfter time.Duration
	// ResetAfter is how long until the counter equals one never used (fixed window: the end of the window). 0 if it does now.
	ResetAfter time.Duration
}

// FailureMode says what is answered while the store cannot decide.
type FailureMode uint8

// The failure modes. As a setting the zero value means "the server's"; as an answer's mark it means "not degraded".
const (
	FailureDefault FailureMode = iota
	FailOpen                   // allow
	FailClosed                 // deny
	FailLocal                  // decide by counters in this process at a fraction of the limit
)

// String returns the mode as it is written in rule files: allow, deny, local, or default.
func (m FailureMode) String() string {
	switch m {
	case FailOpen:
		return "allow"
	case FailClosed:
		return "deny"
	case FailLocal:
		return "local"
	default:
		return "default"
	}
}
