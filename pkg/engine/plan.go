package engine

import (
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// verdict is what a descriptor's rule asks for.
type verdict uint8

const (
	pass  verdict = iota // nothing to count
	deny                 // an action: over at once, nothing to count
	count                // charge the plan's limits
)

// plan is what becomes of one descriptor.
type plan struct {
	verdict verdict
	dropped bool // another matched rule of the request replaces this one
	shadow  bool // never enforced
	quota   bool // see Decision.Over
	// limits are charged; they stand for one override or fallback, too.
	limits []ratelimit.Limit
	charge int32 // its element of Batch.charges; meaningless unless the verdict is count
	// first is the first of its elements of Batch.limits; there are len(limits).
	first int32
}

// plan finds the rules of one request and appends the charges that they ask for.
func (l *Limiter) plan(table *rules.Table, b *Batch, request *ratelimit.Request, decision *Decision, plans []plan) {
	known, replaced, refused := false, false, false
	for i := range request.Descriptors {
		if l.resolve(table, request, i, &decision.Statuses[i], &plans[i]) {
			known = true
		}
		if b.Peek {
			decision.Statuses[i].Cost = 0
		}
		if rule := decision.Statuses[i].Rule; rule != nil && len(rule.Replaces) > 0 {
			replaced = true
		}
	}
	if !known {
		decision.UnknownDomain = true
		return
	}
	if replaced {
		replace(decision.Statuses, plans)
	}
	for i := range plans {
		refused = refused || plans[i].verdict == deny && !plans[i].shadow && !plans[i].quota && decision.Statuses[i].Cost >= 0
	}
	l.charge(b, request, decision.Statuses, plans, refused)
}

// resolve decides what becomes of descriptor i by itself. It reports whether there are rules for the domain.
func (l *Limiter) resolve(table *rules.Table, request *ratelimit.Request, i int, status *Status, p *plan) bool {
	descriptor := &request.Descriptors[i]
	status.Cost = request.Cost
	if descriptor.HasCost {
		status.Cost = descriptor.Cost
	}
	status.Cost = min(max(status.Cost, -ratelimit.MaxCost), ratelimit.MaxCost)

	var match rules.Match
	if table != nil {
		match = table.Match(request.Domain, descriptor.Entries)
	}
	if !match.DomainKnown && request.Fallback == nil {
		return false
	}
	rule := match.Rule
	if rule != nil && rule.Disabled {
		rule = nil
	}
	status.Rule = rule
	p.shadow, p.quota = l.options.ShadowMode, l.options.QuotaMode
	if rule != nil && rule.Action != ratelimit.ActionLimit {
		p.shadow, p.quota = p.shadow || rule.Shadow, p.quota || rule.QuotaMode
		status.Outcome = ratelimit.OutcomeAllowed
		if rule.Action == ratelimit.ActionDeny {
			p.verdict = deny
		}
		return true
	}
	if descriptor.Limit != nil {
		if limits := l.overrides.intern(descriptor.Limit, l.options.EnvoyKeys); limits != nil {
			p.verdict, p.limits = count, limits
			status.Override = true
			return true
		}
	}
	switch {
	case rule == nil:
		if request.Fallback != nil {
			if limits := l.overrides.intern(request.Fallback, false); limits != nil {
				p.verdict, p.limits = count, limits
			}
		}
	case rule.Unlimited || len(rule.Limits) == 0:
		status.Outcome = ratelimit.OutcomeAllowed
	default:
		p.shadow, p.quota = p.shadow || rule.Shadow, p.quota || rule.QuotaMode
		p.verdict, p.limits = count, rule.Limits
	}
	return true
}
