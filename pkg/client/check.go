package client

import (
	"context"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// Checker decides whether something may go on, and charges it. Check must return by ctx's deadline and be safe for
// concurrent use. A denial is a Decision, not an error.
type Checker interface {
	Check(ctx context.Context, check Check) (Decision, error)
}

// Check asks whether one action may go on. What it is counted by is given in one of three ways: Scope and Identifier, RuleID
// and Subject, or Domain and Descriptors.
type Check struct {
	// Scope (user, endpoint, service) and the Identifier in it. Window, if not 0, chooses the limit with that window among
	// those of the rule; it is in whole seconds.
	Scope, Identifier string
	Window            time.Duration

	// RuleID names a rule; Subject is the identifier that a wildcard rule is applied to.
	RuleID, Subject string

	// Domain and Descriptors, as Envoy sends them. A descriptor's Limit takes the place of the matching rule's, and counts where no
	// rule does.
	Domain      string
	Descriptors []ratelimit.Descriptor
	// RulesOnly leaves uncounted what no rule covers; else the default limit counts there. With Descriptors only, and with none that
	// brings a Limit.
	RulesOnly bool

	// Cost is what is charged; 0 means 1, negative gives back.
	Cost int64
	// Peek asks what would be and charges nothing.
	Peek bool
	// RequestID, if not empty, has all checks with this ID and the same content charged once. It also makes a check safe to
	// repeat, so that a Client may try it again.
	RequestID string
}

// cost is what is charged, after the default.
func (c *Check) cost() int64 {
	switch {
	case c.Peek:
		return 0
	case c.Cost == 0:
		return 1
	default:
		return c.Cost
	}
}

// Decision is the answer to a Check.
type Decision struct {
	Allowed bool
	// Reason says why not, for people; it may name the identifier.
	Reason string
	// RuleID is the rule that decided, empty if none matched.
	RuleID string
	// Limit, Remaining and ResetAt are those of the limit that binds most, zero if nothing was counted. See respond.Limit.
	Limit, Remaining int64
	ResetAt          time.Time
	// RetryAfter is how long until a check of this cost would be allowed. 0 if this one was, or if waiting changes nothing.
	RetryAfter time.Duration
	// Degraded tells that the counters could not be reached and a failure mode decided.
	Degraded bool
	// Limits has one element per limit that was counted.
	Limits []respond.Limit
	// Cause is why it was denied.
	Cause respond.Cause
}

// shown is the decision as an HTTP client is told of it.
func (d *Decision) shown() respond.Decision {
	return respond.Decision{Denied: !d.Allowed, Cause: d.Cause, Limits: d.Limits}
}
