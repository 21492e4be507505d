package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weirhq/weir/pkg/respond"
)

// GuardOptions say whom a Guard limits and what it tells them. Checker and one of Key and Describe are required.
type GuardOptions struct {
	Checker Checker

	// Scope and Key count a call by scope and identifier. Scope defaults to "user".
	Scope string
	Key   KeyFunc
	// NoKey is the identifier of all calls that have no key (ErrNoKey) together, so that leaving the key out does not get
	// round the limit. Defaults to "anonymous".
	NoKey string
	// Describe, if not nil, makes the whole check instead: for several descriptors at once, or a rule by its ID. An error is
	// a failure, see FailClosed. Cost is still asked for what it leaves at 0.
	Describe func(*Call) (Check, error)
	// Skip lets calls pass unchecked: health checks, for example.
	Skip func(*Call) bool
	// Cost is what a call is charged. nil: 1. A cost of 0 or less charges nothing and is still denied where nothing is left.
	Cost func(*Call) int64

	// FailClosed denies what cannot be checked, as 503 and UNAVAILABLE. Else such a call is let pass.
	FailClosed bool
	// Timeout bounds each check. Defaults to 100 ms.
	Timeout time.Duration
	// OnError is told of every check that failed. It must be quick. nil: nobody is. The error may name the identifier.
	OnError func(*Call, error)

	// Headers writes the header fields of every checked answer. nil: RateLimit and RateLimit-Policy, and on denials
	// Retry-After.
	Headers *respond.Formatter
	// QuotaStatus is the HTTP status of a denial by a quota. 0: 402.
	QuotaStatus int
	// Media are the forms of a denial's body, of which the client chooses by Accept. Empty: all, problem+json first.
	Media []respond.MediaType
	// Message is the short text of denials that are not problem details. Empty: respond.DefaultMessage.
	Message string
	// Now is the clock of header fields that hold a time. nil: time.Now.
	Now func() time.Time
}

// ErrGuardOptions is wrapped by every error of NewGuard.
var ErrGuardOptions = errors.New("invalid guard settings")

// Guard limits the calls to a service. It is immutable and safe for concurrent use.
type Guard struct {
	options GuardOptions
}

// NewGuard returns a Guard. The error wraps ErrGuardOptions.
func NewGuard(options GuardOptions) (*Guard, error) {
	switch {
	case options.Checker == nil:
		return nil, fmt.Errorf("%w: Checker is nil: set a Client or an Embedded", ErrGuardOptions)
	case options.Key == nil && options.Describe == nil:
		return nil, fmt.Errorf("%w: Key and Describe are nil: set one of them", ErrGuardOptions)
	case options.Timeout < 0:
		return nil, fmt.Errorf("%w: Timeout %v is negative", ErrGuardOptions, options.Timeout)
	case options.QuotaStatus != 0 && (options.QuotaStatus < 400 || options.QuotaStatus > 499):
		return nil, fmt.Errorf("%w: QuotaStatus %d: write 400 to 499, or 0 for 402", ErrGuardOptions, options.QuotaStatus)
	}
	if options.Scope == "" {
		options.Scope = "user"
	}
	if options.NoKey == "" {
		options.NoKey = "anonymous"
	}
	if options.Timeout == 0 {
		options.Timeout = 100 * time.Millisecond
	}
	if options.QuotaStatus == 0 {
		options.QuotaStatus = http.StatusPaymentRequired
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Headers == nil {
		headers, err := respond.New(respond.Options{Styles: respond.IETF})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrGuardOptions, err)
		}
		options.Headers = headers
	}
	return &Guard{options}, nil
}

// verdict is what happens to a call.
type verdict uint8

const (
	pass    verdict = iota // unchecked: skipped, or failed open
	allowed                // the decision says so
	denied                 // the decision says so, or failed closed
	gone                   // the caller does not wait any more
)

// check decides about one call.
func (g *Guard) check(c *Call) (Decision, verdict) {
	if g.options.Skip != nil && g.options.Skip(c) {
		return Decision{}, pass
	}
	var decision Decision
	check, err := g.describe(c)
	if err == nil {
		ctx, cancel := context.WithTimeout(c.Context, g.options.Timeout)
		decision, err = g.options.Checker.Check(ctx, check)
		cancel()
	}
	switch {
	case err == nil && decision.Allowed:
		return decision, allowed
	case err == nil:
		return decision, denied
	case c.Context.Err() != nil:
		// Letting it pass would let callers past the limit who cancel at the right moment.
		return Decision{}, gone
	}
	if g.options.OnError != nil {
		g.options.OnError(c, err)
	}
	if g.options.FailClosed {
		return Decision{Cause: respond.ReducedCapacity, Degraded: true, Reason: "the rate limit could not be checked"}, denied
	}
	return Decision{}, pass
}

func (g *Guard) describe(c *Call) (Check, error) {
	var check Check
	if g.options.Describe != nil {
		var err error
		if check, err = g.options.Describe(c); err != nil {
			return check, fmt.Errorf("describe the call: %w", err)
		}
	} else {
		key, err := g.options.Key(c)
		switch {
		case errors.Is(err, ErrNoKey) || err == nil && key == "":
			key = g.options.NoKey
		case err != nil:
			return check, fmt.Errorf("find the call's key: %w", err)
		}
		check.Scope, check.Identifier = g.options.Scope, key
	}
	check.Identifier, check.Subject = bounded(check.Identifier, maxKey), bounded(check.Subject, maxKey)
	check.RequestID = bounded(check.RequestID, maxRequestID)
	check.Descriptors = boundedDescriptors(check.Descriptors)
	if check.Cost == 0 && !check.Peek && g.options.Cost != nil {
		if check.Cost = g.options.Cost(c); check.Cost <= 0 {
			check.Cost, check.Peek = 0, true
		}
	}
	return check, nil
}
