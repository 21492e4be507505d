package rules

import (
	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const mergeKey = "<<"

// maxAliases bounds how many aliases in a row are followed; an alias of an alias is already rare.
const maxAliases = 10

// resolved follows aliases. It returns nil for a chain without end.
func resolved(n *yaml.Node) *yaml.Node {
	for range maxAliases {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}

// lookup returns the value of a key in a mapping, merged ones included, or nil.
func lookup(n *yaml.Node, name string, depth int) *yaml.Node {
	n = resolved(n)
	if n == nil || depth > maxAliases {
		return nil
	}
	if n.Kind == yaml.SequenceNode { // the value of a merge key
		for _, each := range n.Content {
			if value := lookup(each, name, depth+1); value != nil {
				return value
			}
		}
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == mergeKey {
			if value := lookup(n.Content[i+1], name, depth+1); value != nil {
				return value
			}
		}
	}
	return nil
}

// shortNames are the names that fields have in the short form.
var shortNames = map[string]string{"key": "scope", "value": "identifier"}

// at returns the position of a field: names of keys and indexes of lists lead to it. It is the position of the last step
// that is there, and 0, 0 where the definition is not from YAML.
func (d *Definition) at(path ...any) (line, column int) {
	n := d.node
	if n == nil {
		return 0, 0
	}
	if d.short && len(path) >= 2 && path[0] == "limits" && lookup(n, "limits", 0) == nil {
		path = path[2:] // the short form's limit stands beside its other fields
	}
	for _, step := range path {
		var next *yaml.Node
		switch step := step.(type) {
		case string:
			if d.short && n == d.node && shortNames[step] != "" {
				step = shortNames[step]
			}
			next = lookup(n, step, 0)
		case int:
			if list := resolved(n); list != nil && list.Kind == yaml.SequenceNode && step < len(list.Content) {
				next = list.Content[step]
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return n.Line, n.Column
}

// writes tells whether one of the fields is written, be it faulty.
func (d *Definition) writes(names ...string) bool {
	for _, name := range names {
		if value := lookup(d.node, name, 0); value != nil && !isNull(value) {
			return true
		}
	}
	return false
}

// field is a field's value, or else the whole definition: where a problem about it points.
func (d *Definition) field(name string) *yaml.Node {
	if value := lookup(d.node, name, 0); value != nil {
		return value
	}
	return d.node
}

// kindOf is the kind that a name in match stands for.
func kindOf(name string) ratelimit.MatchKind {
	for kind, each := range kindNames {
		if each == name {
			return kind
		}
	}
	return 0
}
