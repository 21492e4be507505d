package schema_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir/kongplugin/internal/schema"
)

func TestNormalizeTakesWhatKongSends(t *testing.T) {
	for name, c := range map[string]struct {
		config, setting string
		want            any
	}{
		"a default":                      {`{}`, "mode", "grpc"},
		"null":                           {`{"mode": null}`, "mode", "grpc"},
		"an empty string":                {`{"mode": ""}`, "mode", "grpc"},
		"null without a default":         {`{"minute": null}`, "minute", nil},
		"an integer":                     {`{"minute": 5}`, "minute", int64(5)},
		"an integer as a float":          {`{"minute": 5.0}`, "minute", int64(5)},
		"an integer with an exponent":    {`{"minute": 1e3}`, "minute", int64(1000)},
		"an integer that floats lose":    {`{"minute": 1099511627775}`, "minute", int64(1099511627775)},
		"an empty object for an array":   {`{"limit": {}}`, "limit", nil},
		"an empty array":                 {`{"limit": []}`, "limit", nil},
		"an array":                       {`{"limit": [1, 2.0]}`, "limit", []any{int64(1), int64(2)}},
		"members that are no settings":   {`{"__seq__": 7, "__plugin_id": "x", "$refs": {"a": "b"}, "hour": 1}`, "hour", int64(1)},
		"a number that is an integer":    {`{"fallback_fraction": 1}`, "fallback_fraction", 1.0},
		"a setting whose value is false": {`{"fault_tolerant": false}`, "fault_tolerant", false},
	} {
		t.Run(name, func(t *testing.T) {
			values, problems := schema.Normalize([]byte(c.config))
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			if got := values[c.setting]; !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s = %#v, want %#v", c.setting, got, c.want)
			}
		})
	}
	t.Run("defaults of a record that is absent", func(t *testing.T) {
		for _, config := range []string{`{}`, `{"grpc": null}`, `{"grpc": {}}`, `{"grpc": {"host": null}}`} {
			values, problems := schema.Normalize([]byte(config))
			if grpc, _ := values["grpc"].(map[string]any); grpc["host"] != "127.0.0.1" || len(problems) > 0 {
				t.Errorf("%s: %v, %v", config, grpc, problems)
			}
		}
	})
}

func TestNormalizeFindsFaultsAndKeepsTheRest(t *testing.T) {
	for name, c := range map[string]struct{ config, says string }{
		"no JSON":                     {`{"mode": `, "no JSON"},
		"no object":                   {`[]`, "no object"},
		"more than an object":         {`{} {}`, "no JSON"},
		"text for a number":           {`{"minute": "5", "fault_tolerant": false}`, "minute"},
		"a number for text":           {`{"mode": 5, "fault_tolerant": false}`, "mode"},
		"out of range":                {`{"minute": 0, "fault_tolerant": false}`, "out of range"},
		"far out of range":            {`{"minute": 1e400, "fault_tolerant": false}`, "out of range"},
		"no integer":                  {`{"minute": 1.5, "fault_tolerant": false}`, "no integer"},
		"unknown choice":              {`{"mode": "tcp", "fault_tolerant": false}`, "write one of grpc, embedded"},
		"too long":                    {`{"header_name": "` + strings.Repeat("x", 300) + `", "fault_tolerant": false}`, "too long"},
		"too many":                    {`{"limit": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1], "fault_tolerant": false}`, "too many"},
		"null in an array":            {`{"limit": [1, null], "fault_tolerant": false}`, "limit[2]"},
		"a deep fault":                {`{"descriptors": [{"entries": [{"key": "a", "source": "nose"}]}], "fault_tolerant": false}`, "descriptors[1].entries[1].source"},
		"something missing deep down": {`{"descriptors": [{"entries": [{"key": "a"}]}], "fault_tolerant": false}`, "descriptors[1].entries[1].source"},
	} {
		t.Run(name, func(t *testing.T) {
			values, problems := schema.Normalize([]byte(c.config))
			err := errors.Join(problems...)
			if !errors.Is(err, schema.ErrConfig) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
			if strings.Contains(c.config, "false") && values["fault_tolerant"] != false {
				t.Error("one fault took the other settings along")
			}
			if values["fault_code"] == nil {
				t.Error("no defaults")
			}
		})
	}
	t.Run("secrets are not quoted", func(t *testing.T) {
		_, problems := schema.Normalize([]byte(`{"redis": {"password": ["s3cr3t"]}}`))
		if err := errors.Join(problems...); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("error %v", err)
		}
	})
}

// Whatever comes, the result keeps the schema, and reading it again changes nothing.
func FuzzNormalize(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"mode":"embedded","minute":5}`, `{"limit":[1],"window_size":[60.0]}`, `{"descriptors":[{"entries":[{"key":"a","source":"ip"}]}]}`,
		`{"redis":{"host":"h","sentinel_nodes":[{"host":"a"}]},"fallback_fraction":0.5}`, `{"minute":1e308}`, `{"limit":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		values, problems := schema.Normalize(config)
		if values == nil {
			t.Fatal("no values")
		}
		if n, ok := values["minute"].(int64); ok && (n < 1 || n > 1<<40) {
			t.Fatalf("minute %d", n)
		}
		if x := values["fallback_fraction"]; x != 1 {
			if number, ok := x.(float64); !ok || math.IsNaN(number) || number < 0 || number > 1 {
				t.Fatalf("fallback_fraction %v", x)
			}
		}
		text, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		again, more := schema.Normalize(text)
		if len(problems) == 0 && len(more) > 0 {
			t.Fatalf("read again: %v", more)
		}
		second, err := json.Marshal(again)
		if err != nil || string(second) != string(text) {
			t.Fatalf("%s became %s (%v)", text, second, err)
		}
	})
}
