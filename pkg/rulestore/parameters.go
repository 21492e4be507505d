package rulestore

import "strings"

// parameters builds a part of a statement whose values are passed beside it. They MUST stand in the statement in the order
// in which they were added, once each.
type parameters struct {
	place func(n int) string // of the dialect
	terms []string
	args  []any
}

// value returns what stands for a value.
func (p *parameters) value(value any) string {
	p.args = append(p.args, value)
	return p.place(len(p.args))
}

// add adds a condition such as "scope = " and its value.
func (p *parameters) add(comparison string, value any) {
	p.terms = append(p.terms, comparison+p.value(value))
}

// conditions returns the WHERE clause of what was added.
func (p *parameters) conditions() string {
	if len(p.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(p.terms, " AND ")
}

// tuple adds a row of values.
func (p *parameters) tuple(values ...any) {
	p.terms = append(p.terms, "("+p.list(values...)+")")
}

// tuples returns the rows that were added.
func (p *parameters) tuples() string { return strings.Join(p.terms, ", ") }

// list returns what stands for several values, separated by commas.
func (p *parameters) list(values ...any) string {
	places := make([]string, len(values))
	for i, value := range values {
		places[i] = p.value(value)
	}
	return strings.Join(places, ", ")
}
