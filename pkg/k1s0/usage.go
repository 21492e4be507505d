package k1s0

import (
	"context"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// Usage is a rule and what its counters say.
type Usage struct {
	Rule *Rule
	// Counted tells that Used, Remaining and ResetAt, those of the limit that binds most, mean something: a counter is there.
	Counted         bool
	Used, Remaining int64
	ResetAt         int64 // seconds since the Unix epoch, rounded up
	Results         []Result
}

// Usage reads a rule's counters without charging. A rule for many identifiers has state only for a subject.
func (s *Service) Usage(ctx context.Context, id, subject string) (*Usage, error) {
	var f faults
	f.text("subject", subject, maxIdentifier)
	f.require("rule_id", id)
	if err := f.err(); err != nil {
		return nil, err
	}
	rule, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	usage := &Usage{Rule: rule}
	compiled := s.Rules.View().Rule(id)
	if compiled == nil || compiled.Disabled || subject == "" && open(compiled) {
		return usage, nil
	}
	target, err := targetOf(compiled, subject)
	if err != nil {
		return nil, err
	}
	request := ratelimit.Request{Domain: target.domain, Descriptors: []ratelimit.Descriptor{{Entries: target.entries}}, Atomic: true}
	decision := s.Limiter.Check(ctx, request, true)
	if decision.Degraded {
		return nil, countersAway(ctx.Err())
	}
	if winner := decision.Statuses[0].Rule; winner == nil || winner.ID != id {
		return usage, nil // another rule is for this subject
	}
	answer := s.answer(&request, &decision)
	for i := range decision.Statuses[0].Limits {
		usage.Counted = usage.Counted || used(&decision.Statuses[0].Limits[i])
	}
	if i := answer.shown.Tightest(); usage.Counted && i >= 0 {
		tightest := &answer.Results[i]
		usage.Used = max(tightest.Limit.Capacity()-tightest.Remaining, 0)
		usage.Remaining, usage.ResetAt, usage.Results = tightest.Remaining, tightest.ResetAt, answer.Results
	}
	return usage, nil
}

// used tells whether a counter differs from one never used. A fixed window ends some time even if nothing was counted in it.
func used(limit *engine.LimitResult) bool {
	return limit.Result.Remaining < limit.Limit.Capacity() ||
		limit.Limit.Algorithm != ratelimit.FixedWindow && limit.Result.ResetAfter > 0
}

// open tells whether a rule is for more than one descriptor.
func open(rule *ratelimit.Rule) bool {
	for i := range rule.Match {
		if rule.Match[i].Kind != ratelimit.MatchExact {
			return true
		}
	}
	return len(rule.Match) == 0
}

func countersAway(cause error) *Error {
	return &Error{Code: CodeUnavailable, Message: "the counters cannot be reached: try again", cause: cause}
}
