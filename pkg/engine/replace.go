package engine

import (
	"github.com/weirhq/weir/pkg/ratelimit"
)

// replace drops the rules that other matched rules of the request name. It does not matter in which order they come, nor
// whether a rule that names another is dropped itself. Rules whose limits an override replaces neither drop nor are dropped.
func replace(statuses []Status, plans []plan) {
	for i := range statuses {
		rule := replaceable(&statuses[i])
		if rule == nil {
			continue
		}
		for j := range statuses {
			if by := replaceable(&statuses[j]); by != nil && by != rule && names(by.Replaces, rule) {
				plans[i].dropped = true
				break
			}
		}
	}
	for i := range plans {
		if plans[i].dropped {
			plans[i].verdict, plans[i].limits = pass, nil
			statuses[i].Rule, statuses[i].Outcome = nil, ratelimit.OutcomeNone
		}
	}
}

func replaceable(status *Status) *ratelimit.Rule {
	if status.Override {
		return nil
	}
	return status.Rule
}

// names reports whether one of the names is the rule's or one of its limits'.
func names(replaces []string, rule *ratelimit.Rule) bool {
	for _, name := range replaces {
		if name == rule.Name {
			return true
		}
		for i := range rule.Limits {
			if name == rule.Limits[i].Name {
				return true
			}
		}
	}
	return false
}
