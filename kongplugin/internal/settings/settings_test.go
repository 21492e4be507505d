package settings_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/kongplugin/internal/schema"
	"github.com/weirhq/weir/kongplugin/internal/settings"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// The schema and the Go fields name the same settings, of types that fit.
func TestSettingsAreThoseOfTheSchema(t *testing.T) {
	compare(t, "", schema.Fields(), reflect.TypeFor[settings.Settings]())
}

func compare(t *testing.T, path string, fields []schema.Field, record reflect.Type) {
	t.Helper()
	byName := make(map[string]reflect.Type)
	for field := range record.Fields() {
		if tag := field.Tag.Get("json"); tag != "-" {
			byName[tag] = field.Type
		}
	}
	for i := range fields {
		f := &fields[i]
		at := path + f.Name
		goType, ok := byName[f.Name]
		if !ok {
			if !strings.HasSuffix(path, "_nodes[].") { // a Node has both names of a host
				t.Errorf("%s: no Go field", at)
			}
			continue
		}
		delete(byName, f.Name)
		if goType.Kind() == reflect.Pointer {
			goType = goType.Elem()
		}
		kinds := map[schema.Type][]reflect.Kind{
			schema.String: {reflect.String}, schema.Integer: {reflect.Int, reflect.Int64}, schema.Number: {reflect.Float64},
			schema.Boolean: {reflect.Bool}, schema.Array: {reflect.Slice}, schema.Record: {reflect.Struct},
		}
		if !slices.Contains(kinds[f.Type], goType.Kind()) {
			t.Errorf("%s: %s in the schema, %s in Go", at, f.Type, goType)
			continue
		}
		switch {
		case f.Type == schema.Record:
			compare(t, at+".", f.Fields, goType)
		case f.Type == schema.Array && f.Elements.Type == schema.Record:
			compare(t, at+"[].", f.Elements.Fields, goType.Elem())
		}
	}
	for name := range byName {
		if !strings.HasSuffix(path, "_nodes[].") {
			t.Errorf("%s%s: not in the schema", path, name)
		}
	}
}

func parse(t *testing.T, config string) *settings.Settings {
	t.Helper()
	s, problems := settings.Parse([]byte(config))
	if err := errors.Join(problems...); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	s := parse(t, `{"minute": 5, "redis": {"host": "r"}, "route_id": "r1", "service_id": null, "grpc": {"timeout": 50}}`)
	if s.Minute != 5 || s.Redis.Host != "r" || s.Redis.Port != 6379 || s.RouteID != "r1" || s.ServiceID != "" || s.GRPC.Timeout() != 50*time.Millisecond {
		t.Errorf("%+v", s)
	}
	if !s.FaultTolerant || s.FaultCode != 500 || s.HeaderStyle != "kong" || s.LimitBy != "consumer" || s.Cost != 1 {
		t.Errorf("defaults: %+v", s)
	}
}

func TestWindows(t *testing.T) {
	for config, want := range map[string][]string{
		`{"second": 1, "minute": 2, "year": 3}`:                                {"second: 1 per 1s, fixed_window", "minute: 2 per 1m, fixed_window", "year: 3 per year, fixed_window"},
		`{"month": 2, "window_type": "sliding"}`:                               {"month: 2 per 720h, sliding_window"},
		`{"hour": 2, "window_type": "token_bucket"}`:                           {"hour: 2 per 1h, token_bucket, burst 2"},
		`{"limit": [3, 4], "window_size": [30, 90]}`:                           {"30s: 3 per 30s, fixed_window", "90s: 4 per 1m30s, fixed_window"},
		`{"descriptors": [{"entries": [{"key": "a", "source": "consumer"}]}]}`: nil,
	} {
		limits, err := parse(t, config).Windows()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range limits {
			got = append(got, limits[i].Name+": "+limits[i].String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", config, got, want)
		}
	}
	if limits, _ := parse(t, `{"month": 1}`).Windows(); limits[0].Calendar != ratelimit.CalendarMonth {
		t.Error("a fixed month does not follow the calendar")
	}
}

func TestWhatOnlyTheCodeCatches(t *testing.T) {
	entry := func(members string) string { return `{"descriptors": [{"entries": [{"key": "k", ` + members + `}]}]}` }
	for config, says := range map[string]string{
		`{}`: "no limits",
		`{"minute": 1, "limit": [1], "window_size": [60]}`:                      "keep one",
		`{"limit": [1, 2], "window_size": [60]}`:                                "one window_size for each limit",
		`{"limit": [1, 2], "window_size": [60, 60]}`:                            "stands there twice",
		`{"minute": 1, "compound_identifier": ["header", "ip"]}`:                "needs header_name",
		`{"minute": 1, "compound_identifier": ["ip", "ip"]}`:                    "stands there twice",
		`{"minute": 1, "limit_by": "jwt_claim"}`:                                "needs claim_name",
		`{"minute": 1, "fallback_fraction": 0}`:                                 "fallback_fraction",
		`{"minute": 1, "grpc": {"cert_file": "a"}}`:                             "belong together",
		`{"minute": 1, "redis": {"sentinel_nodes": [{"host": "a"}]}}`:           "sentinel_master",
		`{"minute": 1, "redis": {"host": "a", "cluster_nodes": [{"ip": "a"}]}}`: "exclude each other",
		entry(`"source": "value"`):                                              "needs a value",
		entry(`"source": "ip", "value": "x"`):                                   "no value of its own",
		entry(`"source": "ip", "name": "x"`):                                    "has no name",
		entry(`"source": "route", "field": "username"`):                         "has no field",
		`{"mode": "embedded", ` + entry(`"source": "ip"`)[1:]:                   "rules_path",
		`{"fallback": "local", ` + entry(`"source": "ip"`)[1:]:                  "rules_path",
	} {
		_, problems := settings.Parse([]byte(config))
		if err := errors.Join(problems...); !errors.Is(err, schema.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want an error that says %q", config, err, says)
		}
	}
}
