package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// Embedded is a Checker in this process. Limiter is required.
type Embedded struct {
	Limiter *engine.Limiter
	// Domain is that of checks by scope and identifier. Empty: k1s0.
	Domain string
	// Default is the limit where no rule applies, checked by Limit.Check. nil: such a check is allowed.
	Default *ratelimit.Limit
}

var _ Checker = Embedded{}

// Check decides by the limiter's rules and counters. RuleID and Window need the server's rule table and are ErrUncheckable.
func (e Embedded) Check(ctx context.Context, check Check) (Decision, error) {
	if check.RuleID != "" || check.Window != 0 {
		return Decision{}, fmt.Errorf("%w: an embedded engine checks by scope and identifier, or by domain and descriptors", ErrUncheckable)
	}
	request := ratelimit.Request{
		Domain: check.Domain, Descriptors: check.Descriptors, Cost: check.cost(), ID: check.RequestID, Atomic: true, Fallback: e.Default,
	}
	if check.Scope != "" {
		request.Descriptors = []ratelimit.Descriptor{{Entries: []ratelimit.Entry{{Key: check.Scope, Value: check.Identifier}}}}
		if request.Domain = e.Domain; request.Domain == "" {
			request.Domain = "k1s0"
		}
	}
	decided := e.Limiter.Check(ctx, request, check.Peek)
	if decided.Err != nil {
		if errors.Is(decided.Err, ratelimit.ErrConflict) {
			return Decision{}, ErrConflict
		}
		return Decision{}, fmt.Errorf("%w: %w", ErrUncheckable, decided.Err)
	}
	if decided.StoreErr != nil && !decided.Over {
		return Decision{}, fmt.Errorf("%w: %w", ErrUnavailable, decided.StoreErr)
	}
	return decisionFrom(&decided, time.Now()), nil
}

func decisionFrom(decided *engine.Decision, now time.Time) Decision {
	d := Decision{Allowed: !decided.Over, Degraded: decided.Degraded}
	reached, reduced := false, false
	for i := range decided.Statuses {
		status := &decided.Statuses[i]
		if status.Outcome == ratelimit.OutcomeFailedOpen {
			continue
		}
		if status.Rule != nil && (d.RuleID == "" || status.Over) {
			d.RuleID = status.Rule.ID
		}
		reduced = reduced || status.Outcome == ratelimit.OutcomeFailedClosed
		for j := range status.Limits {
			counted := &status.Limits[j]
			name := ""
			if status.Rule != nil {
				name = status.Rule.Label()
			}
			limit := respond.NewLimit(counted.Limit, name, counted.Result)
			limit.Denied = limit.Denied && status.Over && decided.Over
			reached = reached || limit.Denied && status.Outcome != ratelimit.OutcomeFailedClosed
			d.Limits = append(d.Limits, limit)
		}
	}
	switch {
	case d.Allowed || reached:
	case reduced:
		d.Cause = respond.ReducedCapacity
	default:
		d.Cause = respond.Refused
	}
	shown := d.shown()
	if i := shown.Tightest(); i >= 0 {
		l := &d.Limits[i]
		d.Limit, d.Remaining, d.ResetAt = l.Count, l.Remaining, now.Add(l.ResetAfter)
		if l.Denied {
			d.RetryAfter = l.RetryAfter
			d.Reason = "rate limit exceeded"
		}
	}
	return d
}
