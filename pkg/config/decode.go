package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/nearest"
)

// decoder reads a YAML file into a Config, and remembers where each value and each fault stands.
type decoder struct {
	file     string
	places   map[string]place // of each setting that the file has
	problems Problems
}

// place is where a value was written.
type place struct {
	text         string // "FILE:LINE:COLUMN", an environment variable, the command line
	line, column int    // in the file; 0 elsewhere
}

func (d *decoder) at(line, column int) place {
	return place{fmt.Sprintf("%s:%d:%d", d.file, line, column), line, column}
}

func (d *decoder) fault(node *yaml.Node, path, format string, args ...any) {
	d.problems = append(d.problems, newProblem(d.at(node.Line, node.Column), path, fmt.Sprintf(format, args...)))
}

// decode reads text, one YAML document that is a map, or nothing.
func (d *decoder) decode(text []byte, c *Config) {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := documents.Decode(&document); {
	case errors.Is(err, io.EOF):
		return // nothing but comments
	case err != nil:
		d.syntax(err)
		return
	}
	switch err := documents.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.syntax(err)
		return
	default:
		d.fault(&second, "", "a second document: a configuration is one document, remove the line ---")
		return
	}
	if root := document.Content[0]; !isNull(root) {
		d.section(root, reflect.ValueOf(c).Elem(), "")
	}
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// syntax reports an error of the YAML parser in the form of all others.
func (d *decoder) syntax(err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	where := place{text: d.file}
	if found := yamlLine.FindStringSubmatch(message); found != nil {
		message = strings.TrimPrefix(message, found[0])
		if line, err := strconv.Atoi(found[1]); err == nil {
			where = d.at(line, 1)
		}
	}
	if strings.Contains(message, "cannot start any token") {
		message += ": indent with spaces, not tabs, and quote values that begin with @ or `"
	}
	d.problems = append(d.problems, newProblem(where, "", "not YAML: "+message))
}

// section reads a map into a struct.
func (d *decoder) section(node *yaml.Node, v reflect.Value, path string) {
	node = resolved(node)
	if isNull(node) {
		return // a section whose lines are all commented out
	}
	if node.Kind != yaml.MappingNode {
		d.fault(node, path, "%s where a section is expected: write its settings below it, indented", kindName(node))
		return
	}
	prefix := ""
	if path != "" {
		prefix = path + "."
	}
	lines := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := key.Value
		if first, ok := lines[name]; ok {
			d.fault(key, prefix+name, "given twice, first in line %d: remove one", first)
			continue
		}
		lines[name] = key.Line
		field, ok := fieldNamed(v, name)
		switch {
		case !ok:
			d.fault(key, "", "unknown key %s", unknownKey(v.Type(), path, name))
		case isSection(field.Type()):
			d.section(value, field, prefix+name)
		default:
			d.leaf(value, field, prefix+name)
		}
	}
}

// leaf reads a scalar, or a list of them, into a setting. Null leaves it as it is.
func (d *decoder) leaf(node *yaml.Node, v reflect.Value, path string) {
	node = resolved(node)
	if isNull(node) {
		return
	}
	d.places[path] = d.at(node.Line, node.Column)
	isList := v.Kind() == reflect.Slice
	switch {
	case node.Kind == yaml.SequenceNode && isList:
		list := make([]string, 0, len(node.Content))
		for _, element := range node.Content {
			if element = resolved(element); element.Kind != yaml.ScalarNode || isNull(element) {
				d.fault(element, path, "%s in a list of words: write a word", kindName(element))
				continue
			}
			list = append(list, element.Value)
		}
		v.Set(reflect.ValueOf(list))
	case node.Kind != yaml.ScalarNode && isList:
		d.fault(node, path, "%s where a list is expected: write [one, two]", kindName(node))
	case node.Kind != yaml.ScalarNode:
		d.fault(node, path, "%s where a single value is expected", kindName(node))
	default:
		if err := set(v, node.Value); err != nil {
			d.fault(node, path, "%s", err)
		}
	}
}

// unknownKey describes a key that no setting of a section has: the key, and the nearest known one or all there are.
func unknownKey(section reflect.Type, path, name string) string {
	known := fieldNames(section)
	if near := nearest.Name(name, known); near != "" {
		return fmt.Sprintf("%q: did you mean %q?", name, near)
	}
	for _, s := range settings(Defaults()) {
		if last := s.path[strings.LastIndexByte(s.path, '.')+1:]; nearest.Plain(name) == nearest.Plain(last) || name == s.path {
			return fmt.Sprintf("%q: did you mean %q, in another section?", name, s.path)
		}
	}
	if path == "" {
		path = "the file"
	}
	return fmt.Sprintf("%s: %s has %s", strconv.Quote(name), path, strings.Join(known, ", "))
}

func fieldNamed(section reflect.Value, name string) (reflect.Value, bool) {
	for i := range section.NumField() {
		if section.Type().Field(i).Tag.Get("yaml") == name {
			return section.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func fieldNames(section reflect.Type) []string {
	names := make([]string, section.NumField())
	for i := range names {
		names[i] = section.Field(i).Tag.Get("yaml")
	}
	return names
}

// resolved follows an alias to what it stands for.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

func kindName(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	default:
		if isNull(node) {
			return "nothing"
		}
		return "a single value"
	}
}
