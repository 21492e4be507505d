package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

const (
	schemaFile   = "../../config/rules.schema.json"
	shippedRules = "../../config/rules"
)

// unseen are the faults that a schema cannot see, because they are not in one document's structure.
var unseen = []string{
	"bucket_that_cannot_be_counted", "cidr_bad", "cidr_too_many_bits", "domain_twice",
	"faults_in_several_files", "glob_with_stars_in_a_segment", "id_twice", "key_twice", "lease_above_the_limit",
	"lease_of_a_small_burst", "lease_ttl_beyond_the_window", "lease_ttl_too_short", "metadata_key_twice",
	"metadata_not_a_number", "metadata_too_deep", "regex_bad", "regex_repeats_too_often",
	"regex_too_large", "regex_with_look_ahead", "replaces_itself", "same_domain_in_two_files", "same_place", "same_place_below",
	"same_place_though_disabled", "same_place_written_otherwise", "timezone_local", "timezone_unknown", "too_deep",
	"unit_multiplier_beyond_all_time", "unit_multiplier_too_large", "window_finer_than_a_microsecond", "window_overflow",
	"window_overflow_in_hours", "window_too_long", "window_too_short", "window_zero",
}

// unreadable are the faults that keep a YAML reader from giving a schema anything to look at.
var unreadable = []string{
	"alias_bomb", "alias_of_itself", "bracket_left_open", "comments_only", "control_character", "empty_file", "half_written",
	"key_is_a_list", "merge_of_a_text", "not_utf8", "tab_indentation", "unknown_anchor", "utf16",
}

func TestSchemaAcceptsWhatLoads(t *testing.T) {
	schema := compileSchema(t)
	paths := append(caseFiles(t, "testdata/good"), caseFiles(t, shippedRules)...)
	for _, path := range paths {
		t.Run(caseName(path), func(t *testing.T) {
			documents, err := jsonDocuments(t, path)
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range documents {
				if err := schema.Validate(document); err != nil {
					t.Errorf("%#v", err)
				}
			}
		})
	}
}

func TestSchemaRefusesWhatDoesNotLoad(t *testing.T) {
	schema := compileSchema(t)
	seen := map[string]bool{}
	for _, path := range caseFiles(t, "testdata/bad") {
		name := caseName(path)
		seen[name] = true
		if slices.Contains(unreadable, name) || filepath.Ext(path) != ".yaml" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			documents, err := jsonDocuments(t, path)
			if slices.Contains(unseen, name) {
				if err == nil && !refuses(schema, documents) {
					return
				}
				if err == nil {
					t.Error("the schema does see it: take it off the list")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !refuses(schema, documents) {
				t.Error("the schema accepts it")
			}
		})
	}
	for _, name := range slices.Concat(unseen, unreadable) {
		if !seen[name] {
			t.Errorf("there is no testdata/bad/%s", name)
		}
	}
}

// TestSchemaHasTheFieldsOfTheFormat compares the names of all fields, in both directions.
func TestSchemaHasTheFieldsOfTheFormat(t *testing.T) {
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]json.RawMessage
		Defs       map[string]json.RawMessage `json:"$defs"`
	}
	var document object
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	definitions := map[string]object{"document": document}
	for name, raw := range document.Defs {
		var definition object
		if err := json.Unmarshal(raw, &definition); err != nil {
			t.Fatal(err)
		}
		definitions[name] = definition
	}
	for name, fields := range map[string][]string{
		"document": domainFields, "descriptor": descriptorFields, "match": matchFields, "rate_limit": rateLimitFields,
		"limit": limitFields, "rule": ruleFields, "default": defaultFields, "lease": leaseFields,
	} {
		got := slices.Sorted(maps.Keys(definitions[name].Properties))
		if want := slices.Sorted(slices.Values(fields)); !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %v, the loader %v", name, got, want)
		}
	}
}

func TestShippedRulesNameTheSchema(t *testing.T) {
	for _, path := range caseFiles(t, shippedRules) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(data), "\n")
		reference, found := strings.CutPrefix(first, "# yaml-language-server: $schema=")
		if !found {
			t.Errorf("%s does not begin with its schema", path)
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), reference)); err != nil {
			t.Error(err)
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func refuses(schema *jsonschema.Schema, documents []any) bool {
	return slices.ContainsFunc(documents, func(document any) bool { return schema.Validate(document) != nil })
}

// jsonDocuments reads a file as an editor does that knows nothing of rules.
func jsonDocuments(t *testing.T, path string) ([]any, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var documents []any
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, err
		}
		if document != nil {
			documents = append(documents, jsonValue(document))
		}
	}
}

func jsonValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, each := range value {
			value[key] = jsonValue(each)
		}
	case []any:
		for i, each := range value {
			value[i] = jsonValue(each)
		}
	case time.Time:
		return value.Format(time.DateOnly)
	}
	return value
}
