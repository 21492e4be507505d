package rules

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

func (p *parser) fault(n *yaml.Node, message, fix string) {
	p.problems.add(Problem{File: p.file, Line: n.Line, Column: n.Column, Message: message, Fix: fix})
}

// spend takes one visit off the budget, and tells whether there was one.
func (p *parser) spend(n *yaml.Node) bool {
	p.budget--
	if p.budget == 0 {
		p.fault(n, fmt.Sprintf("aliases expand to more than %d nodes", maxExpansion), "write the text out, or use fewer aliases")
	}
	return p.budget > 0
}

// mapping calls visit for each field of a mapping, those that are merged into it (<<) included, and reports unknown and
// doubled ones. It returns false, and has reported it, if n is no mapping.
func (p *parser) mapping(n *yaml.Node, what string, known []string, visit func(name string, value *yaml.Node)) bool {
	fields := resolved(n)
	if fields == nil || fields.Kind != yaml.MappingNode {
		p.fault(n, fmt.Sprintf("%s is %s", what, kindName(fields)), "write fields: "+strings.Join(known, ", "))
		return false
	}
	var seen [32]string
	p.fields(fields, what, known, seen[:0], 0, visit)
	return true
}

// fields visits a mapping's own fields, then those that it merges and does not have itself. It returns what it has seen.
func (p *parser) fields(n *yaml.Node, what string, known, seen []string, depth int, visit func(name string, value *yaml.Node)) []string {
	own := len(seen)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !p.spend(key) {
			return seen
		}
		switch name := key.Value; {
		case key.Kind != yaml.ScalarNode:
			p.fault(key, fmt.Sprintf("a key of %s is %s", what, kindName(key)), "write one of "+strings.Join(known, ", "))
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case slices.Contains(seen[own:], name):
			p.fault(key, fmt.Sprintf("%q stands twice in %s", shortened(name), what), "remove one of them")
		case slices.Contains(seen[:own], name): // overridden by the mapping that merges this one
		case !slices.Contains(known, name):
			p.fault(key, fmt.Sprintf("unknown key %q in %s", shortened(name), what), suggest(name, known))
		case resolved(value) == nil:
			p.fault(value, "an alias of aliases without end", "write the value out")
		default:
			seen = append(seen, name)
			visit(name, value)
		}
	}
	for _, value := range merged {
		sources := []*yaml.Node{value}
		if list := resolved(value); list != nil && list.Kind == yaml.SequenceNode {
			sources = list.Content
		}
		for _, each := range sources {
			from := resolved(each)
			if from == nil || from.Kind != yaml.MappingNode || depth >= maxAliases {
				p.fault(each, "<< merges "+kindName(from), "write <<: *NAME, where NAME is the anchor of a mapping")
				continue
			}
			seen = p.fields(from, what, known, seen, depth+1, visit)
		}
	}
	return seen
}

// itemsOf is the number of items of a list; 0 for what is none.
func itemsOf(n *yaml.Node) int {
	if list := resolved(n); list != nil && list.Kind == yaml.SequenceNode {
		return len(list.Content)
	}
	return 0
}

// sequence calls visit for each item of a list. A missing, null or empty list has none.
func (p *parser) sequence(n *yaml.Node, name string, visit func(item *yaml.Node)) {
	if n == nil || isNull(n) {
		return
	}
	list := resolved(n)
	if list == nil || list.Kind != yaml.SequenceNode {
		p.fault(n, fmt.Sprintf("%s is %s", name, kindName(list)), "write a list: a '-' before each item")
		return
	}
	for _, item := range list.Content {
		if !p.spend(item) {
			return
		}
		visit(item)
	}
}

// text reads a scalar as it is written, whatever YAML takes it for: 010 stays "010". Null is empty.
func (p *parser) text(n *yaml.Node, name string) string {
	scalar := resolved(n)
	if scalar == nil || scalar.Kind != yaml.ScalarNode {
		p.fault(n, fmt.Sprintf("%s is %s", name, kindName(scalar)), "write a text")
		return ""
	}
	if isNull(scalar) {
		return ""
	}
	return scalar.Value
}

// boolean reads true or false, and YAML 1.1's other words for them. Null is false.
func (p *parser) boolean(n *yaml.Node, name string) bool {
	if isNull(n) {
		return false
	}
	var value bool
	if scalar := resolved(n); scalar != nil && scalar.Kind == yaml.ScalarNode && scalar.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 && scalar.Decode(&value) == nil {
		return value
	}
	p.fault(n, fmt.Sprintf("%s is %s", name, describe(n)), "write true or false")
	return false
}

// integer reads a whole number in a range. Null is 0.
func (p *parser) integer(n *yaml.Node, name string, low, high int64) int64 {
	if isNull(n) {
		return 0
	}
	scalar := resolved(n)
	fix := fmt.Sprintf("write a whole number from %d to %d", low, high)
	if scalar == nil || scalar.Kind != yaml.ScalarNode || scalar.Tag != "!!int" && scalar.Tag != "!!float" {
		if scalar != nil && scalar.Tag == "!!str" {
			if _, err := strconv.ParseInt(scalar.Value, 10, 64); err == nil {
				fix = "write " + scalar.Value + " without quotes"
			}
		}
		p.fault(n, fmt.Sprintf("%s is %s", name, describe(n)), fix)
		return 0
	}
	value, err := strconv.ParseInt(scalar.Value, 10, 64)
	if err != nil || len(scalar.Value) > 1 && scalar.Value[0] == '0' { // hexadecimal, 1_000, 1e6: rare enough for the long way
		var number float64
		if scalar.Decode(&value) != nil || scalar.Tag == "!!float" {
			if scalar.Decode(&number) != nil || number != math.Trunc(number) || math.Abs(number) > 1<<53 {
				p.fault(n, fmt.Sprintf("%s is %s", name, describe(n)), fix)
				return 0
			}
			value = int64(number)
		}
	}
	if value < low || value > high {
		p.fault(n, fmt.Sprintf("%s %d is out of range", name, value), fix)
		return 0
	}
	return value
}

func isNull(n *yaml.Node) bool {
	n = resolved(n)
	return n != nil && n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// describe names a value for a message.
func describe(n *yaml.Node) string {
	n = resolved(n)
	if n == nil || n.Kind != yaml.ScalarNode {
		return kindName(n)
	}
	return strconv.Quote(shortened(n.Value))
}

// shortened bounds what a message repeats.
func shortened(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

func kindName(n *yaml.Node) string {
	switch {
	case n == nil:
		return "an alias without end"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	default:
		return "a single value (" + strconv.Quote(shortened(n.Value)) + ")"
	}
}
