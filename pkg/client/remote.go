package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
	ratelimitv1 "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

// Check asks the server within CheckTimeout. A check with a RequestID, and a Peek, is tried again if the server was not
// there.
func (c *Client) Check(ctx context.Context, check Check) (Decision, error) {
	request, err := checkRequest(&check)
	if err != nil {
		return Decision{}, err
	}
	deadline := time.Now().Add(c.options.CheckTimeout)
	if nearer, ok := ctx.Deadline(); !ok || nearer.After(deadline) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	retries := 0
	if check.RequestID != "" || check.Peek {
		retries = c.options.Retries
	}
	reply, err := attempt(ctx, retries, request, c.service.CheckRateLimit)
	if err != nil {
		return Decision{}, err
	}
	return decisionOf(reply, time.Now()), nil
}

func checkRequest(check *Check) (*ratelimitv1.CheckRateLimitRequest, error) {
	if check.Window%time.Second != 0 || check.Window < 0 {
		return nil, fmt.Errorf("%w: window %v: write whole seconds, or 0", ErrInvalid, check.Window)
	}
	cost := check.cost()
	request := &ratelimitv1.CheckRateLimitRequest{
		RuleId: valid(check.RuleID), Subject: valid(check.Subject), Scope: valid(check.Scope), Identifier: valid(check.Identifier),
		WindowSecs: int64(check.Window / time.Second), Cost: &cost, RequestId: valid(check.RequestID), Peek: check.Peek, Domain: valid(check.Domain),
		RulesOnly: check.RulesOnly,
	}
	if len(check.Descriptors) > 0 {
		request.Descriptors = make([]*ratelimitv1.Descriptor, len(check.Descriptors))
	}
	for i := range check.Descriptors {
		d := &check.Descriptors[i]
		descriptor := &ratelimitv1.Descriptor{Entries: make([]*ratelimitv1.Entry, len(d.Entries))}
		for j, entry := range d.Entries {
			descriptor.Entries[j] = &ratelimitv1.Entry{Key: valid(entry.Key), Value: valid(entry.Value)}
		}
		if d.HasCost {
			descriptor.Cost = &d.Cost
		}
		if d.Limit != nil {
			limit := *d.Limit
			if err := limit.Check(); err != nil {
				return nil, fmt.Errorf("%w: descriptor %d: %w", ErrInvalid, i, err)
			}
			if limit.Location != nil && limit.Location != time.UTC || limit.Window%time.Millisecond != 0 {
				return nil, fmt.Errorf("%w: descriptor %d: a limit's window is whole milliseconds, or follows the calendar in UTC", ErrInvalid, i)
			}
			descriptor.Limit = limitMessage(&limit)
		}
		request.Descriptors[i] = descriptor
	}
	return request, nil
}

// limitMessage is a checked limit as it is sent.
func limitMessage(l *ratelimit.Limit) *ratelimitv1.RuleLimit {
	message := &ratelimitv1.RuleLimit{
		Name: valid(l.Name), Algorithm: l.Algorithm.String(), Limit: l.Count, WindowMs: l.Window.Milliseconds(), Burst: l.Burst, Kind: l.Kind.String(),
	}
	if l.Calendar != ratelimit.CalendarNone {
		message.Calendar = l.WindowName()
	}
	return message
}

// valid makes text what a protobuf string must be. A client that sends other bytes must not make its check fail, since
// failing may mean passing.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func decisionOf(reply *ratelimitv1.CheckRateLimitResponse, now time.Time) Decision {
	d := Decision{
		Allowed: reply.GetAllowed(), Reason: reply.GetReason(), RuleID: reply.GetRuleId(),
		RetryAfter: time.Duration(reply.GetRetryAfterMs()) * time.Millisecond, Degraded: reply.GetDegraded(),
	}
	if !reply.GetUnlimited() {
		d.Limit, d.Remaining = reply.GetLimit(), reply.GetRemaining()
		if reply.GetResetAt() > 0 {
			d.ResetAt = time.Unix(reply.GetResetAt(), 0)
		}
	}
	reached := false
	if results := reply.GetResults(); len(results) > 0 {
		d.Limits = make([]respond.Limit, len(results))
		for i, result := range results {
			d.Limits[i] = limitOf(result, now)
			// A limit that would not have allowed it, in a request that went on, is in shadow mode.
			d.Limits[i].Denied = d.Limits[i].Denied && !d.Allowed
			reached = reached || d.Limits[i].Denied
		}
	}
	switch {
	case d.Allowed || reached:
	case d.Degraded:
		d.Cause = respond.ReducedCapacity
	default:
		d.Cause = respond.Refused
	}
	return d
}

func limitOf(result *ratelimitv1.LimitResult, now time.Time) respond.Limit {
	l := respond.Limit{
		Name: result.GetName(), Count: result.GetLimit(), Window: milliseconds(result.GetWindowMs()), Remaining: result.GetRemaining(),
		RetryAfter: milliseconds(result.GetRetryAfterMs()), Denied: !result.GetAllowed(),
	}
	if result.GetBurst() != l.Count {
		l.Burst = result.GetBurst()
	}
	if result.GetResetAt() > 0 {
		l.ResetAfter = max(0, time.Unix(result.GetResetAt(), 0).Sub(now))
	}
	if result.GetKind() == ratelimit.Quota.String() {
		l.Kind = ratelimit.Quota
	}
	return l
}

// milliseconds is n milliseconds, bounded.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), int64(ratelimit.MaxWindow/time.Millisecond))) * time.Millisecond
}

// Usage is a rule and what its counters say.
type Usage struct {
	RuleID        string `json:"rule_id"`
	RuleName      string `json:"rule_name"`
	Limit         int64  `json:"limit"`
	WindowSeconds int64  `json:"window_seconds"`
	Algorithm     string `json:"algorithm"`
	Enabled       bool   `json:"enabled"`
	// Counted tells whether anything is counted yet; the rest means something only then.
	Counted   bool      `json:"-"`
	Used      int64     `json:"used"`
	Remaining int64     `json:"remaining"`
	ResetAt   time.Time `json:"reset_at"`
	// Limits has one element per limit of the rule.
	Limits []respond.Limit `json:"-"`
}

// Usage returns a rule's state without charging. subject narrows a rule for many identifiers to one of them. ErrNotFound,
// ErrInvalid. Needs the role sys_auditor.
func (c *Client) Usage(ctx context.Context, ruleID, subject string) (Usage, error) {
	reply, err := call(ctx, c, true, &ratelimitv1.GetUsageRequest{RuleId: ruleID, Subject: subject}, c.service.GetUsage)
	if err != nil {
		return Usage{}, err
	}
	usage := Usage{
		RuleID: reply.GetRuleId(), RuleName: reply.GetRuleName(), Limit: reply.GetLimit(), WindowSeconds: reply.GetWindowSecs(),
		Algorithm: reply.GetAlgorithm(), Enabled: reply.GetEnabled(), Counted: reply.Used != nil || reply.Remaining != nil,
		Used: reply.GetUsed(), Remaining: reply.GetRemaining(),
	}
	if reply.GetResetAt() > 0 {
		usage.ResetAt = time.Unix(reply.GetResetAt(), 0).UTC()
	}
	now := time.Now()
	for _, result := range reply.GetResults() {
		usage.Limits = append(usage.Limits, limitOf(result, now))
	}
	return usage, nil
}

// Reset sets the counters of one identifier back to never used, and returns the server's confirmation. ErrInvalid. Needs the
// role sys_operator.
func (c *Client) Reset(ctx context.Context, scope, identifier string) (message string, err error) {
	// Twice has the effect of once, unless somebody was counted between; that is for the caller to decide.
	reply, err := call(ctx, c, false, &ratelimitv1.ResetLimitRequest{Scope: scope, Identifier: identifier}, c.service.ResetLimit)
	if err != nil {
		return "", err
	}
	if !reply.GetSuccess() {
		return "", errors.New("the server did not reset: " + reply.GetMessage())
	}
	return reply.GetMessage(), nil
}
