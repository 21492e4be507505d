package config

import (
	"reflect"
	"slices"
)

// Assignment is the value of one setting that was said in other words than its own, such as the environment of another
// program.
type Assignment struct {
	// Setting is its path, such as redis.url.
	Setting string
	// Value is its value as a file would have it. List is that of a list, whose elements may hold commas.
	Value string
	List  []string
	// From says where it was said, for problems: a variable's name.
	From string
}

// applyBase sets what the assignments say, the later one for the same setting, and remembers in places where it came from.
func applyBase(c *Config, base []Assignment, places map[string]place) Problems {
	if len(base) == 0 {
		return nil
	}
	byPath := make(map[string]setting)
	for _, s := range settings(c) {
		byPath[s.path] = s
	}
	var problems Problems
	for _, each := range base {
		at := place{text: each.From}
		s, ok := byPath[each.Setting]
		if !ok {
			problems = append(problems, newProblem(at, each.Setting, "no such setting"))
			continue
		}
		places[each.Setting] = at
		if s.value.Kind() == reflect.Slice && each.List != nil {
			s.value.Set(reflect.ValueOf(slices.Clone(each.List)))
		} else if err := set(s.value, each.Value); err != nil {
			problems = append(problems, newProblem(at, each.Setting, err.Error()))
		}
	}
	return problems
}
