package rules

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Table is an immutable set of compiled rules. It is safe for concurrent use.
type Table struct {
	domains  map[string]*domain
	safe     *ratelimit.Rule // the default of every domain; only in tables made by Safe
	names    []string
	rules    []*ratelimit.Rule
	hash     string
	warnings Problems
	opts     Options
	// layers are the sources that it was compiled from, for Extend: those of a later one yield to those of an earlier one.
	layers []layer
}

// layer is what Compile, or one Extend, has added.
type layer struct {
	sources []*Source
	// reserved are the IDs of the rules of the layers before it, which its definitions must not take; nil if none of them has an
	// ID of its own.
	reserved map[string]bool
}

// Match is what a table says of one descriptor.
type Match struct {
	// Rule is nil if nothing matched. It is the domain's default rule if only that applies.
	Rule        *ratelimit.Rule
	DomainKnown bool
	Default     bool // Rule is the domain's default
}

// Match finds the rule for the descriptor with these entries. It allocates nothing (except for an entry that looks like an IP
// address but is none, where it is compared with CIDR blocks) and keeps neither entries nor their strings.
func (t *Table) Match(domain string, entries []ratelimit.Entry) Match {
	d := t.domains[domain]
	if d == nil {
		return Match{Rule: t.safe, DomainKnown: t.safe != nil, Default: t.safe != nil}
	}
	if rule := d.find(entries); rule != nil {
		return Match{Rule: rule, DomainKnown: true}
	}
	rule := d.fallback
	if rule == nil {
		rule = t.safe
	}
	return Match{Rule: rule, DomainKnown: true, Default: rule != nil}
}

func (d *domain) find(entries []ratelimit.Entry) *ratelimit.Rule {
	at := &d.root
	for i := range entries {
		n := at.match(entries[i].Key, entries[i].Value)
		if n == nil {
			return nil
		}
		if i == len(entries)-1 {
			return n.rule
		}
		if n.next == nil {
			return nil
		}
		at = n.next
	}
	return nil
}

// Rules returns all rules, those of disabled ones and of defaults included: domains by name, then in the order of the
// files, each domain's default last. The slice is the caller's.
func (t *Table) Rules() []*ratelimit.Rule { return slices.Clone(t.rules) }

// Domains returns the names of all domains, sorted. The slice is the caller's.
func (t *Table) Domains() []string { return slices.Clone(t.names) }

// Len is the number of rules, as in Rules.
func (t *Table) Len() int { return len(t.rules) }

// Hash identifies what the rules say: two tables with one hash decide alike. File names, comments, layout and the order of
// domains do not count; the order of definitions within a domain does, because it decides between patterns.
func (t *Table) Hash() string { return t.hash }

// Warnings returns what is valid but probably not meant, such as rules that can never match. The slice is the caller's.
func (t *Table) Warnings() Problems { return slices.Clone(t.warnings) }

// Safe returns a table in which every domain is known and has limit as its default: what a server uses until it has a
// valid rule file. The error wraps ratelimit.ErrLimit.
func Safe(limit ratelimit.Limit) (*Table, error) {
	if err := limit.Check(); err != nil {
		return nil, fmt.Errorf("safe default: %w", err)
	}
	rule := &ratelimit.Rule{
		Name:   "safe-default",
		Path:   defaultPath,
		Limits: []ratelimit.Limit{limit},
		Source: "settings",
	}
	rule.ID = ruleID("", "")
	t := &Table{safe: rule, rules: []*ratelimit.Rule{rule}}
	digest := newDigest()
	digest.rule(rule)
	t.hash = digest.hexadecimal()
	return t, nil
}

// Knows tells whether descriptors of a domain may begin with an entry of this key: a definition is for it, or the domain has
// a default. While the safe default is in force every key is known.
func (t *Table) Knows(domain, key string) bool {
	d := t.domains[domain]
	if d == nil {
		return t.safe != nil
	}
	if t.safe != nil || d.fallback != nil || d.root.keys[key] != nil {
		return true
	}
	return slices.ContainsFunc(d.root.wild, func(w wildKey) bool { return w.key.match(key) })
}

// Keys returns the keys with which the definitions of a domain begin, sorted; those that hold a '*' are left out. The
// slice is the caller's.
func (t *Table) Keys(domain string) []string {
	d := t.domains[domain]
	if d == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(d.root.keys))
}

// Defines tells whether a source of the table has a definition for this entry at the first level of a domain, disabled or
// not, written with this very value: empty for any.
func (t *Table) Defines(domain, key, value string) bool {
	d := t.domains[domain]
	return d != nil && slices.ContainsFunc(d.parts, func(p part) bool {
		return slices.ContainsFunc(p.Descriptors, func(d Definition) bool { return d.Key == key && d.Value == value && d.Match == nil })
	})
}

// IsSafe tells whether the table holds what Safe makes and no more.
func (t *Table) IsSafe() bool { return t.safe != nil && len(t.domains) == 0 }

// Sources returns what the table was compiled from. The slice is the caller's.
func (t *Table) Sources() []*Source {
	var sources []*Source
	for i := range t.layers {
		sources = append(sources, t.layers[i].sources...)
	}
	return sources
}
