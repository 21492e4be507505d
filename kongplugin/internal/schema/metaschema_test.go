package schema_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// metaschema checks a dumped plugin schema by the rules of Kong 3.9's kong/db/schema/metaschema.lua and of the validators in
// kong/db/schema/init.lua: which attributes there are, for which types, of what types they are themselves, and that defaults
// keep the rules of their fields. It returns every fault.
type metaschema struct{ faults []string }

func (m *metaschema) fault(at, format string, args ...any) {
	m.faults = append(m.faults, at+": "+fmt.Sprintf(format, args...))
}

// fieldTypes are the types of fields, and the attributes that they must have.
var fieldTypes = map[string][]string{
	"array": {"elements"}, "set": {"elements"}, "map": {"keys", "values"}, "record": {"fields"}, "json": {"json_schema"},
	"string": nil, "number": nil, "boolean": nil, "integer": nil, "foreign": nil, "any": nil, "function": nil,
}

// attributeKinds are the attributes that a JSON dump can hold, and of what type they are.
var attributeKinds = map[string]string{
	"type": "string", "required": "boolean", "reference": "string", "description": "string", "examples": "array", "auto": "boolean",
	"unique": "boolean", "unique_across_ws": "boolean", "on_delete": "string", "default": "self", "abstract": "boolean",
	"generate_admin_api": "boolean", "immutable": "boolean", "err": "string", "encrypted": "boolean", "referenceable": "boolean",
	"between": "array", "eq": "any", "ne": "any", "gt": "number", "len_eq": "integer", "len_min": "integer", "len_max": "integer",
	"match": "string", "not_match": "string", "match_all": "array", "match_none": "array", "match_any": "record", "starts_with": "string",
	"one_of": "array", "not_one_of": "array", "contains": "any", "is_regex": "boolean", "timestamp": "boolean", "uuid": "boolean",
	"mutually_exclusive_subsets": "array", "elements": "record", "keys": "record", "values": "record", "fields": "array",
	"entity_checks": "array",
}

// attributeTypes restricts attributes to types of fields.
var attributeTypes = map[string][]string{
	"between": {"integer", "number"}, "len_eq": {"array", "set", "string", "map"}, "match": {"string"},
	"one_of": {"string", "number", "integer"}, "contains": {"array", "set"}, "is_regex": {"string"},
	"timestamp": {"number", "integer"}, "uuid": {"string"}, "unique": {"string", "number", "integer", "foreign"},
	"abstract": {"string", "number", "integer", "record", "array", "set", "map"},
}

// check validates what Kong gets of one plugin.
func (m *metaschema) check(plugin map[string]any) {
	for name := range plugin {
		if !slices.Contains([]string{"Name", "Phases", "Version", "Priority", "Schema"}, name) {
			m.fault("plugin", "member %s", name)
		}
	}
	if version, _ := plugin["Version"].(string); !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(version) {
		m.fault("plugin", "version %v", plugin["Version"])
	}
	if priority, ok := plugin["Priority"].(float64); !ok || priority != float64(int(priority)) {
		m.fault("plugin", "priority %v", plugin["Priority"])
	}
	schema, ok := plugin["Schema"].(map[string]any)
	if !ok {
		m.fault("plugin", "no schema")
		return
	}
	for name := range schema {
		if !slices.Contains([]string{"name", "fields", "entity_checks", "shorthand_fields", "transformations"}, name) {
			m.fault("schema", "unknown attribute %s", name)
		}
	}
	if schema["name"] != plugin["Name"] {
		m.fault("schema", "name %v of plugin %v", schema["name"], plugin["Name"])
	}
	m.fields("", schema["fields"])
	checks, ok := schema["entity_checks"].([]any)
	if !ok && schema["entity_checks"] != nil {
		m.fault("entity_checks", "no array")
	}
	for i, check := range checks {
		m.entityCheck(fmt.Sprintf("entity_checks[%d]", i+1), check, schema)
	}
}

func (m *metaschema) fields(at string, raw any) {
	list, ok := raw.([]any)
	if !ok {
		m.fault(at, "fields are no array")
	}
	names := make(map[string]bool)
	for _, item := range list {
		one, ok := item.(map[string]any)
		if !ok || len(one) != 1 {
			m.fault(at, "a field is no table with one key: %v", item)
			continue
		}
		for name, field := range one {
			if names[name] {
				m.fault(at, "field %s stands there twice", name)
			}
			names[name] = true
			m.field(strings.TrimPrefix(at+"."+name, "."), field)
		}
	}
}

func (m *metaschema) field(at string, raw any) {
	field, ok := raw.(map[string]any)
	if !ok {
		m.fault(at, "no table")
		return
	}
	kind, _ := field["type"].(string)
	needed, known := fieldTypes[kind]
	if !known {
		m.fault(at, "type %v", field["type"])
		return
	}
	for _, attribute := range needed {
		if field[attribute] == nil {
			m.fault(at, "a %s must declare %s", kind, attribute)
		}
	}
	for name, value := range field {
		if name != "default" {
			m.attribute(at, kind, name, value)
		}
	}
	for _, nested := range []string{"elements", "keys", "values"} {
		if field[nested] != nil {
			m.field(at+"."+nested, field[nested])
		}
	}
	if field["fields"] != nil {
		m.fields(at, field["fields"])
	}
	if value, ok := field["default"]; ok {
		m.value(at+".default", field, value)
	}
}

func (m *metaschema) attribute(at, kind, name string, value any) {
	want, known := attributeKinds[name]
	if !known {
		m.fault(at, "unknown attribute %s", name)
		return
	}
	if !is(want, value) {
		m.fault(at, "%s is no %s: %v", name, want, value)
	}
	if types := attributeTypes[name]; types != nil && !slices.Contains(types, kind) {
		m.fault(at, "a %s cannot have %s", kind, name)
	}
	switch name {
	case "description":
		if n := len(value.(string)); n < 10 || n > 500 {
			m.fault(at, "a description of %d characters", n)
		}
	case "between":
		// Before Kong 3.5 both had to be integers.
		bounds, _ := value.([]any)
		if len(bounds) != 2 || !is("integer", bounds[0]) || !is("integer", bounds[1]) || bounds[0].(float64) >= bounds[1].(float64) {
			m.fault(at, "between %v", value)
		}
	}
}

func is(kind string, value any) bool {
	switch kind {
	case "string":
		_, ok := value.(string)
		return ok
	case "boolean":
		_, ok := value.(bool)
		return ok
	case "number":
		_, ok := value.(float64)
		return ok
	case "integer":
		number, ok := value.(float64)
		return ok && number == float64(int64(number))
	case "array":
		_, ok := value.([]any)
		return ok
	case "record":
		_, ok := value.(map[string]any)
		return ok
	default:
		return true
	}
}

// value checks a default by its field's rules.
func (m *metaschema) value(at string, field map[string]any, value any) {
	kind := field["type"].(string)
	if !is(kind, value) {
		m.fault(at, "%v is no %s", value, kind)
		return
	}
	if allowed, ok := field["one_of"].([]any); ok && !slices.Contains(allowed, value) {
		m.fault(at, "%v is not one of %v", value, allowed)
	}
	if bounds, ok := field["between"].([]any); ok {
		if number, ok := value.(float64); ok && (number < bounds[0].(float64) || number > bounds[1].(float64)) {
			m.fault(at, "%v is not between %v", value, bounds)
		}
	}
	if text, ok := value.(string); ok {
		least, most := 1.0, 1e9 // strings have len_min 1 unless they say otherwise
		if n, ok := field["len_min"].(float64); ok {
			least = n
		}
		if n, ok := field["len_max"].(float64); ok {
			most = n
		}
		if n := float64(len(text)); n < least || n > most {
			m.fault(at, "a string of %v characters, want %v to %v", n, least, most)
		}
	}
}

// entityChecks are the arguments of each check that a dump can hold: those that name fields.
var entityChecks = map[string][]string{
	"at_least_one_of": nil, "only_one_of": nil, "distinct": nil, "mutually_required": nil, "mutually_exclusive": nil,
	"mutually_exclusive_sets":     {"set1", "set2"},
	"conditional":                 {"if_field", "then_field"},
	"conditional_at_least_one_of": {"if_field", "then_at_least_one_of", "else_then_at_least_one_of"},
}

func (m *metaschema) entityCheck(at string, raw any, schema map[string]any) {
	check, ok := raw.(map[string]any)
	if !ok || len(check) != 1 {
		m.fault(at, "no table with one key: %v", raw)
		return
	}
	for name, argument := range check {
		members, known := entityChecks[name]
		if !known {
			m.fault(at, "unknown check %s", name)
			continue
		}
		if members == nil {
			m.names(at, argument, schema)
			continue
		}
		arguments, ok := argument.(map[string]any)
		if !ok {
			m.fault(at, "%s takes a table", name)
			continue
		}
		for member, value := range arguments {
			switch {
			case slices.Contains(members, member):
				m.names(at, value, schema)
			case member == "if_match" || member == "then_match" || member == "else_match":
				match, ok := value.(map[string]any)
				if !ok {
					m.fault(at, "%s is no table", member)
				}
				for attribute, value := range match {
					if want, known := attributeKinds[attribute]; !known || attribute == "type" || !is(want, value) {
						m.fault(at, "%s: attribute %s", member, attribute)
					}
				}
			case strings.HasSuffix(member, "_err"):
			default:
				m.fault(at, "%s has no argument %s", name, member)
			}
		}
	}
}

// names looks fields up, which Kong does not.
func (m *metaschema) names(at string, value any, schema map[string]any) {
	names, ok := value.([]any)
	if !ok {
		names = []any{value}
	}
	if len(names) == 0 {
		m.fault(at, "names no field")
	}
	for _, name := range names {
		text, ok := name.(string)
		if !ok || !has(schema, strings.Split(text, ".")) {
			m.fault(at, "there is no field %v", name)
		}
	}
}

func has(record map[string]any, path []string) bool {
	fields, _ := record["fields"].([]any)
	for _, item := range fields {
		if field, ok := item.(map[string]any)[path[0]].(map[string]any); ok {
			return len(path) == 1 || has(field, path[1:])
		}
	}
	return false
}

// checkDump returns the faults of a dump.
func checkDump(dump []byte) ([]string, error) {
	var info struct {
		Protocol, SocketPath string
		Plugins              []map[string]any
	}
	if err := json.Unmarshal(dump, &info); err != nil {
		return nil, err
	}
	m := &metaschema{}
	if info.Protocol != "ProtoBuf:1" {
		m.fault("dump", "protocol %q", info.Protocol)
	}
	if len(info.Plugins) != 1 {
		m.fault("dump", "%d plugins", len(info.Plugins))
	}
	for _, plugin := range info.Plugins {
		m.check(plugin)
	}
	return m.faults, nil
}
