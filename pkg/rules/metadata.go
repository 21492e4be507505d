package rules

import (
	"fmt"
	"math"

	"gopkg.in/yaml.v3"
)

// maxMetadataDepth bounds how deep metadata nests.
const maxMetadataDepth = 16

// metadata reads a map that becomes a protobuf Struct in replies: only what JSON has, so dates stay text. Null and empty
// are nil.
func (p *parser) metadata(n *yaml.Node) map[string]any {
	if isNull(n) {
		return nil
	}
	value, ok := p.metadataValue(n, 1).(map[string]any)
	if !ok {
		p.fault(n, "metadata is "+kindName(resolved(n)), "write fields with their values")
	}
	if len(value) == 0 {
		return nil
	}
	return value
}

func (p *parser) metadataValue(n *yaml.Node, depth int) any {
	from := resolved(n)
	switch {
	case from == nil || depth > maxMetadataDepth:
		p.fault(n, fmt.Sprintf("metadata nests deeper than %d levels", maxMetadataDepth), "use fewer levels")
	case !p.spend(n):
	case from.Kind == yaml.MappingNode:
		result := make(map[string]any, len(from.Content)/2)
		p.metadataFields(from, result, depth)
		return result
	case from.Kind == yaml.SequenceNode:
		result := make([]any, 0, len(from.Content))
		for _, each := range from.Content {
			result = append(result, p.metadataValue(each, depth+1))
		}
		return result
	default:
		return p.metadataScalar(from)
	}
	return nil
}

// metadataFields adds a mapping's fields, its own before those that it merges.
func (p *parser) metadataFields(n *yaml.Node, to map[string]any, depth int) {
	var merged []*yaml.Node
	own := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch _, overridden := to[key.Value]; {
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode:
			p.fault(key, "a key of metadata is "+kindName(key), "write a text")
		case own[key.Value]:
			p.fault(key, fmt.Sprintf("%q stands twice in metadata", key.Value), "remove one of them")
		case !overridden:
			own[key.Value] = true
			to[key.Value] = p.metadataValue(value, depth+1)
		}
	}
	for _, each := range merged {
		from := resolved(each)
		if from == nil || from.Kind != yaml.MappingNode || depth > maxMetadataDepth {
			p.fault(each, "<< merges "+kindName(from), "write <<: *NAME, where NAME is the anchor of a mapping")
			continue
		}
		p.metadataFields(from, to, depth+1)
	}
}

func (p *parser) metadataScalar(n *yaml.Node) any {
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		var value bool
		if n.Decode(&value) == nil {
			return value
		}
	case "!!int", "!!float":
		var value float64
		if n.Decode(&value) == nil {
			if math.IsNaN(value) || math.IsInf(value, 0) {
				p.fault(n, "metadata holds "+n.Value+", which JSON cannot", "write a finite number, or quotes around it")
			}
			return value
		}
	}
	return n.Value
}
