package k1s0

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// target is a descriptor that a rule is for.
type target struct {
	domain  string
	entries []ratelimit.Entry
}

// target finds the descriptor that a rule in force and a subject stand for. Another rule may win for it, as it would for
// any other check.
func (s *Service) target(ruleID, subject string) (target, error) {
	view := s.Rules.View()
	rule := view.Rule(ruleID)
	if rule == nil {
		if view.Overridden(ruleID) {
			return target{}, &Error{Code: CodeCheck, Message: "the rule is not in force: a rule file has one for the same place"}
		}
		return target{}, ruleNotFound(ruleID)
	}
	return targetOf(rule, subject)
}

// targetOf is target for a rule that is known. The open level of a rule, at which it takes more than one value, gets the
// subject.
func targetOf(rule *ratelimit.Rule, subject string) (target, error) {
	t := target{rule.Domain, make([]ratelimit.Entry, len(rule.Match))}
	open := -1
	for i := range rule.Match {
		level := &rule.Match[i]
		t.entries[i] = ratelimit.Entry{Key: level.Key, Value: level.Pattern}
		if level.Kind != ratelimit.MatchExact {
			if open >= 0 {
				return target{}, descriptorsNeeded(rule, "has several open levels")
			}
			open = i
		}
		if strings.Contains(level.Key, "*") {
			return target{}, descriptorsNeeded(rule, "is for many keys")
		}
	}
	var f faults
	switch {
	case len(rule.Match) == 0:
		return target{}, descriptorsNeeded(rule, "is a default")
	case open < 0:
		if only := t.entries[len(t.entries)-1].Value; subject != "" && subject != only {
			f.add("subject", "must be %q or empty: the rule is for this one alone", shortened(only))
		}
	case subject == "":
		f.add("subject", "is required: the rule is for more than one")
	case !rules.Matches(&rule.Match[open], subject):
		f.add("subject", "must be one that the rule is for: it does not match %q", shortened(rule.Match[open].Pattern))
	default:
		t.entries[open].Value = subject
	}
	return t, f.err()
}

func descriptorsNeeded(rule *ratelimit.Rule, because string) *Error {
	return &Error{Code: CodeCheck, Message: fmt.Sprintf("the rule %s %s: send domain and descriptors instead", shortened(rule.Label()), because)}
}
