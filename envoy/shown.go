package envoy

import (
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// appendShown appends what the client is told: response_headers_to_add, and on a denial raw_body.
func (s *Service) appendShown(dst []byte, w *work, decision *engine.Decision) []byte {
	show(&w.shown, decision)
	if s.options.Headers != nil {
		w.headers = s.options.Headers.Append(w.headers[:0], &w.shown, s.options.Now())
		for i := range w.headers {
			dst = appendHeader(dst, w.headers[i].Name, w.headers[i].Value)
		}
	}
	if !s.options.Problem || !decision.Over {
		return dst
	}
	dst = appendHeader(dst, "content-type", respond.ProblemJSON.ContentType())
	dst, start := begin(dst, responseRawBody)
	body := respond.Body{Status: s.options.Status}
	dst = body.Append(dst, respond.ProblemJSON, &w.shown)
	return end(dst, start)
}

// show describes a decision for a client: all limits that were counted, except where a dead store was passed over.
func show(shown *respond.Decision, decision *engine.Decision) {
	shown.Denied, shown.Cause = decision.Over, respond.LimitReached
	shown.Limits = shown.Limits[:0]
	reached, reduced := false, false
	for i := range decision.Statuses {
		status := &decision.Statuses[i]
		if status.Outcome == ratelimit.OutcomeFailedOpen {
			continue
		}
		if status.Outcome == ratelimit.OutcomeFailedClosed {
			reduced = true
		} else if status.Over && len(status.Limits) > 0 {
			reached = true
		}
		for j := range status.Limits {
			counted := &status.Limits[j]
			limit := respond.NewLimit(counted.Limit, nameOf(status, counted.Limit), counted.Result)
			limit.Denied = limit.Denied && status.Over && decision.Over
			shown.Limits = append(shown.Limits, limit)
		}
	}
	switch {
	case !decision.Over || reached:
	case reduced:
		shown.Cause = respond.ReducedCapacity
	default:
		shown.Cause = respond.Refused
	}
}
