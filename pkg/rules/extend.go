package rules

import (
	"slices"

	"gopkg.in/yaml.v3"
)

// Left is a definition that Extend has left out.
type Left struct {
	Domain string
	*Definition
}

// Extend returns a table of t's definitions and those of further sources, which may add to t's domains. A definition at the
// first level that stands where one of t's does, or has the ID of one of t's rules, is left out: t's wins. Those left out are
// returned. The error is as Compile's, about everything else that is wrong with the sources.
//
// It takes the time that takes what is new: domains of t alone are taken as they are, as are those that a table in reuse, whose
// elements may be nil, has compiled from the very same definitions.
//
// In a table made by Safe, the safe default stays what descriptors get that match nothing, in the sources' domains too.
func (t *Table) Extend(reuse []*Table, sources ...*Source) (*Table, []Left, error) {
	added := layer{sources: sources}
	if slices.ContainsFunc(sources, func(s *Source) bool {
		return slices.ContainsFunc(s.Domains, func(d Domain) bool { return identifies(d.Descriptors) })
	}) {
		added.reserved = make(map[string]bool, len(t.rules))
		for _, rule := range t.rules {
			added.reserved[rule.ID] = true
		}
	}
	c := newCompiler(t.opts, append(slices.Clip(t.layers), added)...)
	table, err := c.finish(append([]*Table{t}, reuse...))
	if err != nil {
		return nil, nil, err
	}
	var left []Left
	for _, name := range table.names {
		d := table.domains[name]
		for _, each := range d.yielded {
			if d.parts[each.part].layer == len(table.layers)-1 {
				left = append(left, Left{name, each.Definition})
			}
		}
	}
	if t.safe != nil {
		table.keepSafe(t)
	}
	return table, left, nil
}

// keepSafe makes the default of a table made by Safe apply where nothing else does.
func (t *Table) keepSafe(safe *Table) {
	t.safe = safe.safe
	t.rules = append(t.rules, safe.safe)
	whole := newDigest()
	whole.text(t.hash, safe.hash)
	t.hash = whole.hexadecimal()
}

// yields tells whether a definition is left out for one of an earlier layer.
func (c *compiler) yields(d located, taken map[place]located, at place) bool {
	other, ok := taken[at]
	if ok = ok && other.layer < d.layer; ok || d.ID != "" && c.table.layers[d.layer].reserved[d.ID] {
		c.at.yielded = append(c.at.yielded, yielding{d.Definition, slices.IndexFunc(c.at.parts, func(p part) bool { return p.layer == d.layer })})
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
