package config

import (
	"bytes"
	"net/url"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"
)

// Write returns a configuration file that says what the assignments do, without what is the default. Secrets are left out: their
// settings are returned by their paths, and so is redis.url if a password was taken out of it. The error is Problems.
func Write(base []Assignment) (file []byte, secrets []string, err error) {
	c := Defaults()
	if problems := applyBase(c, base, map[string]place{}); len(problems) > 0 {
		return nil, nil, problems
	}
	defaults := settings(Defaults())
	root := &yaml.Node{Kind: yaml.MappingNode}
	for i, s := range settings(c) {
		switch value := s.value.Interface().(type) {
		case Secret:
			if !value.IsZero() {
				secrets = append(secrets, s.path)
			}
			continue
		case URL:
			if bare, had := withoutPassword(string(value)); had {
				s.value = reflect.ValueOf(URL(bare))
				secrets = append(secrets, s.path)
			}
		}
		if !reflect.DeepEqual(s.value.Interface(), defaults[i].value.Interface()) {
			node(root, strings.Split(s.path, "."), s.value)
		}
	}
	if len(root.Content) == 0 {
		return nil, secrets, nil
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), secrets, encoder.Close()
}

// node adds a setting to a tree of sections.
func node(section *yaml.Node, path []string, value reflect.Value) {
	key := &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}
	if len(path) == 1 {
		section.Content = append(section.Content, key, written(value))
		return
	}
	for i := 0; i < len(section.Content); i += 2 {
		if section.Content[i].Value == path[0] {
			node(section.Content[i+1], path[1:], value)
			return
		}
	}
	below := &yaml.Node{Kind: yaml.MappingNode}
	section.Content = append(section.Content, key, below)
	node(below, path[1:], value)
}

func written(value reflect.Value) *yaml.Node {
	switch {
	case value.Kind() == reflect.Slice:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range value.Len() {
			list.Content = append(list.Content, written(value.Index(i)))
		}
		return list
	case value.Kind() == reflect.String:
		n := new(yaml.Node)
		n.SetString(value.String()) // not as show does, which hides a URL's password
		return n
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: show(value)}
	}
}

func withoutPassword(text string) (bare string, had bool) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.User == nil {
		return text, false
	}
	if _, had = parsed.User.Password(); !had {
		return text, false
	}
	if parsed.User = url.User(parsed.User.Username()); parsed.User.Username() == "" {
		parsed.User = nil
	}
	return parsed.String(), true
}
