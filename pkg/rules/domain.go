package rules

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// domain is one compiled domain. It is immutable, and tables share it: where only one of many domains has changed, only that one
// is compiled.
type domain struct {
	root     level
	fallback *ratelimit.Rule // nil: the domain has no default

	name     string
	parts    []part
	rules    []*ratelimit.Rule // in the order of the files, the default last
	sum      [sha256.Size]byte // of what its definitions say
	warnings Problems
	// identified are the definitions with an ID of their own whose rules are in the domain.
	identified []located
	yielded    []yielding
}

// part is what one source says about a domain.
type part struct {
	*Domain
	source *Source
	layer  int
	// lost are the IDs that definitions of it have and that are reserved for layers before its own.
	lost []string
}

// yielding is a definition that was left out for one of an earlier layer.
type yielding struct {
	*Definition
	part int // whose it is; another part of its layer stands for it
}

// gather collects the parts of each domain over all layers.
func (c *compiler) gather() map[string][]part {
	parts := map[string][]part{}
	for n := range c.table.layers {
		each := &c.table.layers[n]
		for _, source := range each.sources {
			for i := range source.Domains {
				one := part{Domain: &source.Domains[i], source: source, layer: n}
				name := cmp.Or(one.Name, c.opts.DefaultDomain)
				if one.nameless {
					name = fmt.Sprintf("%s, document %d", source.Name, i+1)
				}
				if len(each.reserved) > 0 {
					one.lost = lostOf(one.Descriptors, each.reserved, nil)
				}
				if all := parts[name]; !c.opts.MergeDomains && len(all) > 0 && all[len(all)-1].layer == n {
					first := all[slices.IndexFunc(all, func(p part) bool { return p.layer == n })]
					c.fault(one.located(name), fmt.Sprintf("domain %q is already defined at %s", name, first.located(name).where("domain")),
						"move its rules there, or set merge_domains", nil, "domain")
				}
				parts[name] = append(parts[name], one)
			}
		}
	}
	return parts
}

// located is where the domain is named.
func (p *part) located(domain string) located {
	return located{Definition: &Definition{node: p.node}, source: p.source, domain: domain}
}

// lostOf adds the IDs of definitions that are reserved.
func lostOf(definitions []Definition, reserved map[string]bool, lost []string) []string {
	for i := range definitions {
		if id := definitions[i].ID; id != "" && reserved[id] {
			lost = append(lost, id)
		}
		lost = lostOf(definitions[i].Descriptors, reserved, lost)
	}
	return lost
}

// identifies tells whether a definition has an ID of its own.
func identifies(definitions []Definition) bool {
	return slices.ContainsFunc(definitions, func(d Definition) bool { return d.ID != "" || identifies(d.Descriptors) })
}

// madeOf tells whether the domain was compiled from parts like these: the same definitions, in layers of the same order.
func (d *domain) madeOf(parts []part) bool {
	return slices.EqualFunc(d.parts, parts, func(a, b part) bool {
		return a.Domain == b.Domain && a.layer-d.parts[0].layer == b.layer-parts[0].layer && slices.Equal(a.lost, b.lost)
	})
}

// reused returns a domain that one of the tables has compiled from these parts, nil if none has.
func reused(tables []*Table, name string, parts []part) *domain {
	for _, t := range tables {
		if t == nil {
			continue
		}
		if d := t.domains[name]; d != nil && d.madeOf(parts) {
			return d
		}
	}
	return nil
}

// domain compiles one domain.
func (c *compiler) domain(name string, parts []part) *domain {
	c.at = &domain{name: name, parts: parts}
	c.digest, c.ids = newDigest(), map[string]located{}
	mark := len(c.problems.list)
	first := parts[0].located(name)
	c.checkName(first, name, "domain", "domain")

	var descriptors []located
	var fallback located
	for i := range parts {
		each := &parts[i]
		descriptors = slices.Grow(descriptors, len(each.Descriptors))
		for j := range each.Descriptors {
			descriptors = append(descriptors, located{Definition: &each.Descriptors[j], source: each.source, domain: name, layer: each.layer})
		}
		if each.Default == nil {
			continue
		}
		other := fallback
		fallback = located{Definition: each.Default, source: each.source, domain: name, path: defaultPath, layer: each.layer}
		if other.Definition != nil {
			c.fault(fallback, fmt.Sprintf("domain %q already has a default at %s", name, other.where()), "remove one of them", nil)
			fallback = other
		}
	}
	c.digest.text(name)
	if root := c.level(name, nil, descriptors, 1, false); root != nil {
		c.at.root = *root
	}
	c.digest.flag(fallback.Definition != nil)
	if fallback.Definition != nil {
		c.fallback(fallback)
	}
	c.unknownReplaces(c.replacing, c.at.rules)
	c.replacing = nil
	c.at.sum = c.digest.sum()
	if len(c.problems.list) > mark {
		c.at.warnings = slices.Clone(c.problems.list[mark:])
	}
	return c.at
}

// fallback compiles a domain's default.
func (c *compiler) fallback(d located) {
	rule := c.rule(d, nil, false)
	if rule == nil && !d.writes("limits", "rate_limit") {
		c.fault(d, "the default limits nothing", "write limits or an action, or remove it", nil)
	} else if rule != nil && !rule.Disabled {
		c.at.fallback = rule
	}
}

// assemble puts the compiled domains into the table.
func (c *compiler) assemble(domains map[string]*domain) {
	t := c.table
	t.domains, t.names = domains, slices.Sorted(maps.Keys(domains))
	count := 0
	for _, d := range domains {
		count += len(d.rules)
	}
	t.rules = make([]*ratelimit.Rule, 0, count)
	whole := newDigest()
	for _, name := range t.names {
		d := domains[name]
		t.rules = append(t.rules, d.rules...)
		whole.text(string(d.sum[:]))
	}
	t.hash = whole.hexadecimal()
	c.uniqueIDs()
}

// uniqueIDs reports IDs that definitions of different domains share; those of one are reported when it is compiled.
func (c *compiler) uniqueIDs() {
	owners := map[string]*located{}
	for _, name := range c.table.names {
		d := c.table.domains[name]
		for i := range d.identified {
			each := &d.identified[i]
			if other, ok := owners[each.ID]; ok && other.domain != name {
				c.taken(*each, each.ID, other.where())
			} else if !ok {
				owners[each.ID] = each
			}
		}
	}
	if len(owners) == 0 {
		return
	}
	for _, rule := range c.table.rules { // one without an ID of its own may have got an ID that another one has written
		if owner, ok := owners[rule.ID]; ok && owner.domain != rule.Domain {
			c.taken(*owner, rule.ID, rule.Source)
		}
	}
}

func (c *compiler) taken(d located, id, where string) {
	c.fault(d, fmt.Sprintf("id %q is already that of the rule at %s", id, where), "write another id, or none", nil, "id")
}
