package ruleset

import (
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// View is what was in force at one moment. It is immutable and safe for concurrent use.
type View struct {
	// Table decides.
	Table *rules.Table
	// Files are the rules of files, of all domains, in the order of rules.Table.Rules. They must not be changed.
	Files []*ratelimit.Rule

	files      *rules.Table
	byID       map[string]*ratelimit.Rule
	fromFile   map[string]*ratelimit.Rule
	overridden map[string]bool
}

func newView(table, files *rules.Table, safe bool, left []*rules.Definition) *View {
	v := &View{
		Table: table, files: files,
		byID: make(map[string]*ratelimit.Rule, table.Len()), fromFile: map[string]*ratelimit.Rule{}, overridden: map[string]bool{},
	}
	if !safe {
		v.Files = files.Rules()
	}
	for _, rule := range v.Files {
		v.fromFile[rule.ID] = rule
	}
	for _, rule := range table.Rules() {
		v.byID[rule.ID] = rule
	}
	for _, definition := range left {
		v.overridden[definition.ID] = true
	}
	return v
}

// Rule returns the rule in force with an ID, nil if there is none.
func (v *View) Rule(id string) *ratelimit.Rule { return v.byID[id] }

// FileRule returns the rule with an ID that a file has, nil if none has it.
func (v *View) FileRule(id string) *ratelimit.Rule { return v.fromFile[id] }

// Overridden tells whether a stored rule is not in force because a file has a rule for its place, or of its ID.
func (v *View) Overridden(id string) bool { return v.overridden[id] }

// Taken tells whether a file has a definition for the place of a stored rule.
func (v *View) Taken(domain, scope, pattern string) bool {
	return v.files.Defines(domain, scope, value(pattern))
}
