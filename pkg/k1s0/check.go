package k1s0

import (
	"context"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// Check asks whether an action may go on. What it is counted by is said in one of three ways: RuleID and Subject, Scope and
// Identifier, or Domain and Descriptors.
type Check struct {
	RuleID, Subject   string
	Scope, Identifier string
	Domain            string
	Descriptors       []ratelimit.Descriptor

	// Window picks the limit of the matched rule that has this window; where none has, the default limit over it counts. 0: all
	// limits. Not with Descriptors.
	Window time.Duration
	Cost   int64
	// RequestID, if not empty, has all checks with it and the same content charged once.
	RequestID string
	// Peek charges nothing.
	Peek bool
	// RulesOnly leaves uncounted what no rule covers. With Descriptors only, and with none that brings a limit.
	RulesOnly bool
}

// Decision is the answer to a Check. If Unlimited, nothing is counted and Limit, Remaining and ResetAt mean nothing; else
// they are those of the limit that binds most.
type Decision struct {
	Allowed, Unlimited, Degraded bool
	Limit, Remaining             int64
	ResetAt                      int64 // seconds since the Unix epoch, rounded up
	RetryAfter                   time.Duration
	Reason                       string
	RuleID                       string
	Results                      []Result

	shown respond.Decision
	at    time.Time // when it was decided, by which the times that clients are told are reckoned
}

// Result is what one limit says.
type Result struct {
	Name, RuleID string
	Limit        ratelimit.Limit
	Allowed      bool
	Remaining    int64
	ResetAt      int64
	RetryAfter   time.Duration
}

// Check decides and charges.
func (s *Service) Check(ctx context.Context, check Check) (*Decision, error) {
	request, err := s.request(&check)
	if err != nil {
		return nil, err
	}
	decision := s.Limiter.Check(ctx, request, check.Peek)
	if decision.Err != nil {
		return nil, asError(decision.Err)
	}
	if err := ctx.Err(); err != nil && decision.Degraded {
		return nil, asError(err) // nobody waits for what the failure mode says
	}
	if decision.StoreErr != nil {
		s.Logger.ErrorContext(ctx, "a check was let pass because its counters could not be reached", "error", decision.StoreErr)
	}
	return s.answer(&request, &decision), nil
}

// request translates a check for the engine.
func (s *Service) request(check *Check) (ratelimit.Request, error) {
	if err := s.validateCheck(check); err != nil {
		return ratelimit.Request{}, err
	}
	request := ratelimit.Request{
		Domain: s.Domain, Cost: check.Cost, ID: check.RequestID, Atomic: true, Fallback: &s.Default,
	}
	switch {
	case len(check.Descriptors) > 0:
		request.Domain, request.Descriptors = check.Domain, check.Descriptors
		if check.RulesOnly {
			request.Fallback = nil
		}
		return request, nil
	case check.RuleID != "":
		target, err := s.target(check.RuleID, check.Subject)
		if err != nil {
			return ratelimit.Request{}, err
		}
		request.Domain, request.Descriptors = target.domain, []ratelimit.Descriptor{{Entries: target.entries}}
	default:
		request.Descriptors = []ratelimit.Descriptor{{Entries: []ratelimit.Entry{{Key: check.Scope, Value: check.Identifier}}}}
	}
	if check.Window > 0 {
		s.pick(&request, check.Window)
	}
	return request, nil
}

// pick makes the one limit count that has the window: of the rule that matches the request's one descriptor, or else the
// default limit.
func (s *Service) pick(request *ratelimit.Request, window time.Duration) {
	byDefault := s.Default
	byDefault.Window = window
	descriptor := &request.Descriptors[0]
	rule := s.Rules.View().Table.Match(request.Domain, descriptor.Entries).Rule
	switch {
	case rule == nil || rule.Disabled:
		request.Fallback = &byDefault
	case rule.Action != ratelimit.ActionLimit || rule.Unlimited:
	default:
		descriptor.Limit = &byDefault
		for i := range rule.Limits {
			limit := &rule.Limits[i]
			if limit.Window != window || limit.Calendar != ratelimit.CalendarNone {
				continue
			}
			if len(rule.Limits) == 1 {
				descriptor.Limit = nil // the rule itself says so
			} else {
				descriptor.Limit = limit
			}
			return
		}
	}
}

// answer tells what the engine decided.
func (s *Service) answer(request *ratelimit.Request, decision *engine.Decision) *Decision {
	now := s.Now()
	if decision.At != 0 {
		now = time.UnixMicro(decision.At) // a repetition is told what was told first
	}
	answer := &Decision{Allowed: true, Degraded: decision.Degraded, at: now}
	var known bool // whether the counters are
	for i := range decision.Statuses {
		status := &decision.Statuses[i]
		over := status.Over && decision.Over
		if status.Override && status.Rule != nil && status.Rule.Shadow {
			over = false // a limit that was picked out of a rule in shadow mode is in shadow mode too
		}
		if over && answer.Allowed {
			answer.Allowed = false
			answer.Reason = reasonFor(status, s.subjectOf(request, i))
			answer.shown.Cause = causeOf(status)
		}
		if status.Outcome == ratelimit.OutcomeFailedOpen && answer.Reason == "" {
			answer.Reason = reasonFailOpen
		}
		known = known || status.Outcome != ratelimit.OutcomeFailedOpen
		if answer.RuleID == "" && status.Rule != nil {
			answer.RuleID = status.Rule.ID
		}
		for j := range status.Limits {
			answer.add(status, &status.Limits[j], over, now)
		}
	}
	answer.shown.Denied = !answer.Allowed
	answer.tighten()
	if !known {
		answer.shown.Limits = nil // a client must not be told what nobody knows
	}
	return answer
}

// add takes in what one limit says.
func (d *Decision) add(status *engine.Status, limit *engine.LimitResult, over bool, now time.Time) {
	result := Result{
		Limit: *limit.Limit, Allowed: limit.Result.Allowed || !over, Remaining: limit.Result.Remaining,
		ResetAt: unixSeconds(now.Add(limit.Result.ResetAfter)),
	}
	if status.Rule != nil {
		result.Name, result.RuleID = status.Rule.Label(), status.Rule.ID
	}
	shown := respond.NewLimit(limit.Limit, result.Name, limit.Result)
	shown.Denied = shown.Denied && over
	result.Name = shown.Name
	if !result.Allowed {
		result.RetryAfter = limit.Result.RetryAfter
		d.RetryAfter = max(d.RetryAfter, result.RetryAfter)
	}
	d.Results = append(d.Results, result)
	d.shown.Limits = append(d.shown.Limits, shown)
}

// tighten tells of the decision as a whole what the limit that binds most says.
func (d *Decision) tighten() {
	i := d.shown.Tightest()
	if i < 0 {
		d.Unlimited = d.Allowed
		return
	}
	tightest := &d.Results[i]
	d.Limit, d.Remaining, d.ResetAt = tightest.Limit.Count, tightest.Remaining, tightest.ResetAt
	if tightest.RuleID != "" {
		d.RuleID = tightest.RuleID
	}
}

func causeOf(status *engine.Status) respond.Cause {
	switch {
	case status.Outcome == ratelimit.OutcomeFailedClosed:
		return respond.ReducedCapacity
	case status.Rule != nil && status.Rule.Action == ratelimit.ActionDeny:
		return respond.Refused
	default:
		return respond.LimitReached
	}
}

// tolerance is the time that may pass between the store's reading of its clock and ours: without it the end of a fixed window,
// which is a whole second, would be told a second late most of the time.
const tolerance = 100 * time.Millisecond

// unixSeconds rounds up to whole seconds.
func unixSeconds(t time.Time) int64 { return t.Add(time.Second - time.Nanosecond - tolerance).Unix() }
