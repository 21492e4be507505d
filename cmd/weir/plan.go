package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/weirhq/weir/pkg/client"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// plan is how a server's rules become those of a file.
type plan struct {
	Changes []change `json:"changes" yaml:"changes"`
	// Unchanged counts the rules that are already as the file says, Kept those that it does not name.
	Unchanged int  `json:"unchanged" yaml:"unchanged"`
	Kept      int  `json:"kept" yaml:"kept"`
	Applied   bool `json:"applied" yaml:"applied"`
}

// change is what happens to one rule.
type change struct {
	Action string `json:"action" yaml:"action"` // create, update or delete
	Rule   string `json:"rule" yaml:"rule"`     // SCOPE:PATTERN
	ID     string `json:"id,omitempty" yaml:"id,omitempty"`
	// Fields are what an update changes, and what a creation sets.
	Fields []fieldChange `json:"fields,omitempty" yaml:"fields,omitempty"`
	Done   bool          `json:"done" yaml:"done"`

	spec    client.RuleSpec
	version int64
	text    string // the rule in words, for a creation and a deletion
}

// fieldChange is one field's old and new value, as the API spells them.
type fieldChange struct {
	Field string `json:"field" yaml:"field"`
	From  any    `json:"from,omitempty" yaml:"from,omitempty"`
	To    any    `json:"to" yaml:"to"`
}

// newPlan compares. A rule of the file is the server's with the same ID, if it names one, or else the one for the same
// identifiers. The error tells what cannot be done.
func newPlan(wanted []fileRule, have []client.Rule, prune bool) (*plan, error) {
	byKey, byID := map[string]*client.Rule{}, map[string]*client.Rule{}
	for i := range have {
		if r := &have[i]; !readOnly(r.Source) {
			byKey[r.Key()], byID[r.ID] = r, r
		}
	}
	p := &plan{Changes: []change{}}
	var creations, updates, deletions []change
	named := map[string]bool{}
	for i := range wanted {
		w := &wanted[i]
		spec := w.spec()
		current := byID[w.ID]
		if current == nil {
			current = byKey[spec.Key()]
		}
		if current == nil {
			creations = append(creations, change{
				Action: "create", Rule: spec.Key(), spec: spec, text: specText(spec.Limit, spec.WindowSeconds, spec.Algorithm, spec.Burst),
				Fields: creationFields(&spec),
			})
			continue
		}
		if named[current.ID] {
			return nil, fmt.Errorf("line %d: the rule %s is there twice: once by its id and once by its scope and pattern", w.line, spec.Key())
		}
		named[current.ID] = true
		fields := changedFields(current, &spec)
		if len(fields) == 0 {
			p.Unchanged++
			continue
		}
		if w.Version > 0 && w.Version != current.Version {
			return nil, fmt.Errorf("line %d: the file has version %d of %s, the server has %d: %w: take over what was changed, or leave version out",
				w.line, w.Version, current.Key(), current.Version, client.ErrStale)
		}
		updates = append(updates, change{
			Action: "update", Rule: current.Key(), ID: current.ID, Fields: fields, spec: spec, version: current.Version,
		})
	}
	for i := range have {
		r := &have[i]
		switch {
		case readOnly(r.Source) || named[r.ID]:
		case prune:
			deletions = append(deletions, change{
				Action: "delete", Rule: r.Key(), ID: r.ID, version: r.Version, text: specText(r.Limit, r.WindowSeconds, r.Algorithm, r.Burst),
			})
		default:
			p.Kept++
		}
	}
	// In this order none meets a rule for the same identifiers that is still to go.
	p.Changes = append(append(append(p.Changes, deletions...), updates...), creations...)
	return p, nil
}

func creationFields(spec *client.RuleSpec) []fieldChange {
	fields := []fieldChange{
		{Field: "name", To: spec.Name},
		{Field: "limit", To: spec.Limit},
		{Field: "window_seconds", To: spec.WindowSeconds},
		{Field: "algorithm", To: spec.Algorithm},
		{Field: "enabled", To: *spec.Enabled},
	}
	if spec.Burst != 0 {
		fields = append(fields, fieldChange{Field: "burst", To: spec.Burst})
	}
	return fields
}

func changedFields(r *client.Rule, spec *client.RuleSpec) []fieldChange {
	var fields []fieldChange
	differ := func(field string, from, to any) {
		if from != to {
			fields = append(fields, fieldChange{field, from, to})
		}
	}
	differ("scope", r.Scope, spec.Scope)
	differ("identifier_pattern", r.IdentifierPattern, spec.IdentifierPattern)
	differ("name", r.Name, spec.Name)
	differ("limit", r.Limit, spec.Limit)
	differ("window_seconds", r.WindowSeconds, spec.WindowSeconds)
	differ("algorithm", r.Algorithm, spec.Algorithm)
	if effectiveBurst(r.Algorithm, r.Limit, r.Burst) != effectiveBurst(spec.Algorithm, spec.Limit, spec.Burst) {
		differ("burst", r.Burst, spec.Burst)
	}
	differ("enabled", r.Enabled, *spec.Enabled)
	return fields
}

// effectiveBurst is the size of a bucket after its algorithm's default.
func effectiveBurst(algorithm string, limit, burst int64) int64 {
	switch {
	case burst != 0:
		return burst
	case algorithm == ratelimit.TokenBucket.String():
		return limit
	case algorithm == ratelimit.LeakyBucket.String():
		return 1
	default:
		return 0
	}
}

// summary counts what the plan does.
func (p *plan) summary() string {
	counts := map[string]int{}
	for i := range p.Changes {
		counts[p.Changes[i].Action]++
	}
	var words []string
	for _, action := range []string{"create", "update", "delete"} {
		if n := counts[action]; n > 0 {
			words = append(words, fmt.Sprintf("%d to %s", n, action))
		}
	}
	if len(words) == 0 {
		words = append(words, "nothing to do")
	}
	words = append(words, fmt.Sprintf("%d unchanged", p.Unchanged))
	text := strings.Join(words, ", ")
	if p.Kept > 0 {
		text += fmt.Sprintf("; %s not in the file stay (--prune deletes them)", count(p.Kept, "rule"))
	}
	return text
}

// print writes the changes for people: + what comes, ~ what changes, - what goes.
func (p *plan) print(w io.Writer) {
	for i := range p.Changes {
		c := &p.Changes[i]
		switch c.Action {
		case "create":
			state := ""
			if !*c.spec.Enabled {
				state = ", disabled"
			}
			fmt.Fprintf(w, "+ %s\t%s%s\n", shown(c.Rule), c.text, state)
		case "delete":
			fmt.Fprintf(w, "- %s\t%s\n", shown(c.Rule), c.text)
		default:
			var words []string
			for _, f := range c.Fields {
				words = append(words, shown(fmt.Sprintf("%s: %v -> %v", f.Field, f.From, f.To)))
			}
			fmt.Fprintf(w, "~ %s\t%s\n", shown(c.Rule), strings.Join(words, ", "))
		}
	}
}

// apply makes the changes, one after the other. They are not one transaction: what is done stays done when one fails.
func (p *plan) apply(ctx context.Context, c *client.Client) error {
	for i := range p.Changes {
		change := &p.Changes[i]
		var err error
		switch change.Action {
		case "create":
			var rule client.Rule
			rule, err = c.CreateRule(ctx, change.spec)
			change.ID = rule.ID
		case "update":
			_, err = c.UpdateRule(ctx, change.ID, change.version, change.spec)
		default:
			err = c.DeleteRule(ctx, change.ID, change.version)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w (%d of %s made before)", change.Action, change.Rule, err, i, count(len(p.Changes), "change"))
		}
		change.Done = true
	}
	p.Applied = true
	return nil
}
