package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// Decider decides requests in this process: an *embed.Engine, or what OfLimiter returns. Decide calls use with the answer,
// which is valid only during this call, or returns why there is none.
type Decider interface {
	Decide(ctx context.Context, request *ratelimit.Request, use func(*engine.Decision)) error
}

// OfLimiter makes a Decider of an engine that the caller has put together.
func OfLimiter(l *engine.Limiter) Decider { return limiter{l} }

type limiter struct{ *engine.Limiter }

// Decide implements Decider.
func (l limiter) Decide(ctx context.Context, request *ratelimit.Request, use func(*engine.Decision)) error {
	decided := l.Check(ctx, *request, false)
	if decided.Err != nil {
		return decided.Err
	}
	use(&decided)
	return nil
}

// Embedded is a Checker in this process. Decider is required.
type Embedded struct {
	Decider Decider
	// Domain is that of checks by scope and identifier. Empty: k1s0.
	Domain string
	// Default is the limit where no rule applies, checked by Limit.Check. nil: such a check is allowed.
	Default *ratelimit.Limit
}

var _ Checker = Embedded{}

// Check decides by the engine's rules and counters. RuleID and Window need a server's rule table and are ErrUncheckable.
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
	if check.RulesOnly {
		request.Fallback = nil
	}
	if check.Peek {
		request.ID = ""
		request.Descriptors = slices.Clone(request.Descriptors)
		for i := range request.Descriptors {
			request.Descriptors[i].HasCost = false
		}
	}
	var (
		decision Decision
		storeErr error
	)
	err := e.Decider.Decide(ctx, &request, func(decided *engine.Decision) {
		if storeErr = decided.StoreErr; storeErr == nil || decided.Over {
			storeErr = nil
			decision = decisionFrom(decided, time.Now())
		}
	})
	switch {
	case errors.Is(err, ratelimit.ErrConflict):
		return Decision{}, fmt.Errorf("%w: %w", ErrConflict, err)
	case err != nil:
		return Decision{}, fmt.Errorf("%w: %w", ErrUncheckable, err)
	case storeErr != nil:
		return Decision{}, fmt.Errorf("%w: %w", ErrUnavailable, storeErr)
	}
	return decision, nil
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
