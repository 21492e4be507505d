package engine

import "github.com/weirhq/weir/pkg/ratelimit"

// fold turns the store's results into the answer to one request, and tells the Recorder.
//
// The request is over if a descriptor outside quota mode is, or if all descriptors in quota mode that are limited and
// enforced are, and there is at least one. Shadow mode therefore never changes an answer, in quota mode neither.
func (l *Limiter) fold(b *Batch, request *ratelimit.Request, decision *Decision, plans []plan) {
	if decision.UnknownDomain {
		if !b.Peek {
			l.options.Recorder.UnknownDomain(request.Domain, len(request.Descriptors))
		}
		return
	}
	for i := range plans {
		if plans[i].verdict == count {
			if err := b.charges[plans[i].charge].Err; err != nil && passed(err) {
				decision.Err = err
				return
			}
		}
	}
	inQuota, overQuota := 0, 0
	for i := range plans {
		p, status := &plans[i], &decision.Statuses[i]
		switch p.verdict {
		case count:
			b.settle(decision, status, p)
		case deny:
			refuse(status, p)
		case pass:
		}
		if p.verdict != pass && p.quota && !p.shadow {
			inQuota++
			if status.Over {
				overQuota++
			}
		} else if status.Over {
			decision.Over = true
		}
		if l.options.ShadowMode && status.shadowedByMode() && !p.quota {
			decision.Shadowed = true
		}
		if !b.Peek {
			l.options.Recorder.Decided(request.Domain, request.Descriptors[i].Entries, status)
		}
	}
	if inQuota > 0 && inQuota == overQuota {
		decision.Over = true
	}
	if !b.Peek {
		l.options.Recorder.Answered(decision)
	}
}

// shadowedByMode tells whether a descriptor is over and its own rule would have it denied.
func (status *Status) shadowedByMode() bool {
	return status.Outcome == ratelimit.OutcomeShadowDenied && (status.Override || status.Rule == nil || !status.Rule.Shadow)
}

// refuse answers for an action that denies. Giving back is always allowed.
func refuse(status *Status, p *plan) {
	switch {
	case status.Cost < 0:
		status.Outcome = ratelimit.OutcomeAllowed
	case p.shadow:
		status.Outcome = ratelimit.OutcomeShadowDenied
	default:
		status.Outcome, status.Over = ratelimit.OutcomeDenied, true
	}
}

// settle answers for a descriptor whose limits were counted.
func (b *Batch) settle(decision *Decision, status *Status, p *plan) {
	charge := &b.charges[p.charge]
	if charge.Err != nil {
		decision.Degraded = true
		if decision.StoreErr == nil {
			decision.StoreErr = charge.Err
		}
		status.Outcome, status.Degraded = ratelimit.OutcomeFailedOpen, ratelimit.FailOpen
		return
	}
	first, end := int(p.first), int(p.first)+len(p.limits)
	status.Limits = b.limits[first:end:end]
	for i := range status.Limits {
		status.Limits[i].Result = b.results[b.hitOf[first+i]]
	}
	allowed := status.tighten()

	if decision.At == 0 {
		decision.At = charge.At
	}
	status.Degraded, status.Cached = charge.Degraded, charge.Cached
	decision.Degraded = decision.Degraded || charge.Degraded != ratelimit.FailureDefault
	switch charge.Degraded {
	case ratelimit.FailOpen:
		allowed = true
		status.Outcome = ratelimit.OutcomeFailedOpen
	case ratelimit.FailClosed:
		allowed = status.Cost < 0
		status.Outcome = ratelimit.OutcomeFailedClosed
		if p.shadow {
			status.Outcome = ratelimit.OutcomeFailedOpen
		}
	case ratelimit.FailLocal:
		status.Outcome = ratelimit.OutcomeLocal
	case ratelimit.FailureDefault:
		switch {
		case allowed:
			status.Outcome = ratelimit.OutcomeAllowed
		case p.shadow:
			status.Outcome = ratelimit.OutcomeShadowDenied
		default:
			status.Outcome = ratelimit.OutcomeDenied
		}
	}
	if !allowed && !p.shadow {
		status.Over = true
		status.Remaining = 0
	}
}

// tighten fills what status says about its limits as a whole from the tightest of them, and reports whether all allow.
func (status *Status) tighten() (allowed bool) {
	allowed = true
	tightest := &status.Limits[0]
	status.Granted = tightest.Result.Granted
	for i := range status.Limits {
		limit := &status.Limits[i]
		if !limit.Result.Allowed {
			allowed = false
			status.RetryAfter = max(status.RetryAfter, limit.Result.RetryAfter)
		}
		if tighter(&limit.Result, &tightest.Result) {
			tightest = limit
		}
	}
	// A hit that several descriptors share was granted to all of them together.
	if status.Cost >= 0 {
		status.Granted = min(status.Granted, status.Cost)
	} else {
		status.Granted = max(status.Granted, status.Cost)
	}
	status.Limit = tightest.Limit
	status.Remaining = tightest.Result.Remaining
	status.ResetAfter = tightest.Result.ResetAfter
	return allowed
}

// tighter reports whether a says more about what a client may do than b: what denies before what allows, then the longer
// wait, then the smaller remaining, then the later reset. Of equals the first in the rule's order counts.
func tighter(a, b *ratelimit.Result) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	default:
		return a.ResetAfter > b.ResetAfter
	}
}
