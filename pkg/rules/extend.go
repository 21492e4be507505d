package rules

import (
	"slices"

	"gopkg.in/yaml.v3"
)

// Extend returns a table of t's definitions and those of a further source, which may add to t's domains. A definition at the
// first level that stands where one of t's does, or has the ID of one of t's rules, is left out: t's wins. Those left out are
// returned. The error is as Compile's, about everything else that is wrong with source.
//
// In a table made by Safe, the safe default stays what descriptors get that match nothing, in source's domains too.
func (t *Table) Extend(source *Source) (*Table, []*Definition, error) {
	opts := t.opts
	opts.MergeDomains = true // t's own sources were checked when it was made
	c := newCompiler(opts)
	c.yielding = source
	c.reserved = make(map[string]bool, len(t.rules))
	for _, rule := range t.rules {
		c.reserved[rule.ID] = true
	}
	table := c.compile(append(slices.Clip(t.sources), source))
	problems := c.problems.sorted()
	if problems.fatal() {
		return nil, nil, problems
	}
	table.warnings = problems
	if t.safe != nil {
		table.keepSafe(t)
	}
	return table, c.yielded, nil
}

// keepSafe makes the default of a table made by Safe apply where nothing else does.
func (t *Table) keepSafe(safe *Table) {
	t.safe = safe.safe
	t.rules = append(t.rules, safe.safe)
	for _, d := range t.domains {
		if d.fallback == nil {
			d.fallback = safe.safe
		}
	}
	whole := newDigest()
	whole.text(t.hash, safe.hash)
	t.hash = whole.sum()
}

// yields tells whether a definition is left out for one that the table being extended has.
func (c *compiler) yields(d located, taken map[place]located, at place) bool {
	if d.source != c.yielding {
		return false
	}
	other, ok := taken[at]
	if ok = ok && other.source != c.yielding; ok || c.reserved[d.ID] {
		c.yielded = append(c.yielded, d.Definition)
		return true
	}
	return false
}

// forgetText lets go of the text that the definitions were parsed from, which takes many times their memory. Their
// positions stay.
func (s *Source) forgetText() {
	for i := range s.Domains {
		domain := &s.Domains[i]
		domain.node = positionOf(domain.node)
		forgetText(domain.Descriptors)
		if domain.Default != nil {
			domain.Default.node = positionOf(domain.Default.node)
		}
	}
}

func forgetText(definitions []Definition) {
	for i := range definitions {
		definitions[i].node = positionOf(definitions[i].node)
		forgetText(definitions[i].Descriptors)
	}
}

func positionOf(node *yaml.Node) *yaml.Node {
	if node == nil {
		return nil
	}
	return &yaml.Node{Line: node.Line, Column: node.Column}
}
