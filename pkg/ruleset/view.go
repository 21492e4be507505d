package ruleset

import (
	"sync"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// View is what was in force at one moment. It is immutable and safe for concurrent use.
type View struct {
	// Table decides.
	Table *rules.Table
	// Files are the rules that cannot be changed through the API, those of files and of a control plane, of all domains, in the
	// order of rules.Table.Rules. They must not be changed.
	Files []*ratelimit.Rule

	fixed *rules.Table
	// What is made of many rules only when it is asked for.
	byID, fromFile func() map[string]*ratelimit.Rule
	overridden     map[string]bool
}

// newView makes the view of a table, of which fixed are the rules that no API changes, and stored, which may be nil, are the stored
// ones.
func newView(table, fixed *rules.Table, stored *Slot) *View {
	v := &View{Table: table, fixed: fixed, overridden: map[string]bool{}}
	if !fixed.IsSafe() {
		v.Files = fixed.Rules()
	}
	v.fromFile = sync.OnceValue(func() map[string]*ratelimit.Rule { return byID(v.Files) })
	v.byID = sync.OnceValue(func() map[string]*ratelimit.Rule { return byID(table.Rules()) })
	if stored != nil {
		for _, definition := range stored.left {
			v.overridden[definition.ID] = true
		}
	}
	return v
}

func byID(rules []*ratelimit.Rule) map[string]*ratelimit.Rule {
	all := make(map[string]*ratelimit.Rule, len(rules))
	for _, rule := range rules {
		all[rule.ID] = rule
	}
	return all
}

// Rule returns the rule in force with an ID, nil if there is none.
func (v *View) Rule(id string) *ratelimit.Rule { return v.byID()[id] }

// FileRule returns the rule with an ID that a file or a control plane has, nil if none has it.
func (v *View) FileRule(id string) *ratelimit.Rule { return v.fromFile()[id] }

// Overridden tells whether a stored rule is not in force because a file or a control plane has a rule for its place, or of its ID.
func (v *View) Overridden(id string) bool { return v.overridden[id] }

// Taken tells whether a file or a control plane has a definition for the place of a stored rule.
func (v *View) Taken(domain, scope, pattern string) bool {
	return v.fixed.Defines(domain, scope, value(pattern))
}
