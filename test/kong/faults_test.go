package kong_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/weirhq/weir/test/kong"
)

// What Kong's schema does not catch makes requests pass, or fail as set, and is logged once for all workers.
func TestFaultyConfigs(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		log    string
	}{
		"no limits":         {map[string]any{"limit_by": "ip"}, "no limits"},
		"two styles":        {map[string]any{"hour": 1, "descriptors": []any{map[string]any{"entries": []any{map[string]any{"key": "a", "source": "ip"}}}}}, "both limits and descriptors"},
		"no header name":    {map[string]any{"hour": 1, "limit_by": "header"}, "needs header_name"},
		"unknown way":       {map[string]any{"hour": 1, "limit_by": "shoe_size"}, "limit_by"},
		"text for a number": {map[string]any{"hour": "many"}, "hour"},
		"lists differ":      {map[string]any{"limit": []int{1, 2}, "window_size": []int{60}}, "window size"},
		"bad template":      {map[string]any{"hour": 1, "error_body": "{{.Nope}}"}, "error_body"},
		"no rules":          {map[string]any{"descriptors": []any{map[string]any{"entries": []any{map[string]any{"key": "a", "source": "ip"}}}}}, "rules_path"},
		"source needs name": {map[string]any{"rules_path": "/nowhere", "descriptors": []any{map[string]any{"entries": []any{map[string]any{"key": "a", "source": "header"}}}}}, "needs a name"},
		"two Redises":       {map[string]any{"hour": 1, "redis": map[string]any{"host": "a", "socket": "/b"}}, "exclude each other"},
		"not even a record": {map[string]any{"hour": 1, "redis": "localhost"}, "redis"},
	} {
		t.Run(name, func(t *testing.T) {
			node := kong.Start(t, 2)
			values := embedded(c.values)
			tolerant := configure(values)
			for _, worker := range node.Workers {
				if response := must(t, worker, tolerant, anyone(0)); response.Denied() || len(response.Calls) != 0 {
					t.Errorf("tolerant: status %d after %v", response.Status, response.Calls)
				}
			}
			if !strings.Contains(node.Process().Log(), c.log) {
				t.Errorf("the log does not name %q:\n%s", c.log, node.Process().Log())
			}
			strict := maps.Clone(values)
			strict["fault_tolerant"], strict["fault_code"] = false, 503
			response := must(t, node.Workers[0], configure(strict), anyone(0))
			if response.Status != 503 || !strings.Contains(response.Body, "An unexpected error occurred") {
				t.Errorf("strict: status %d, body %s", response.Status, response.Body)
			}
		})
	}
	t.Run("logged once", func(t *testing.T) {
		fresh := kong.Start(t, 4)
		config := configure(embedded(nil))
		for range 3 {
			for _, worker := range fresh.Workers {
				must(t, worker, config, anyone(0))
			}
		}
		if n := strings.Count(fresh.Process().Log(), "cannot be used"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, fresh.Process().Log())
		}
	})
}

// What Kong sends along is no fault.
func TestTolerantConfig(t *testing.T) {
	node := kong.Start(t, 1)
	config := configure(embedded(map[string]any{
		"limit_by": "ip", "hour": 2.0, "minute": nil, "redis": nil, "grpc": map[string]any{"host": nil, "port": 50051},
		"descriptors": map[string]any{}, "compound_identifier": []any{}, "header_name": "", "something_new": map[string]any{"a": 1},
		"day": 1e6, "fault_tolerant": false, "error_code": nil,
	}))
	for i := range 3 {
		response := must(t, node.Workers[0], config, anyone(0))
		if want := []int{0, 0, 429}[i]; response.Status != want {
			t.Errorf("request %d: status %d, want %d: %s", i+1, response.Status, want, node.Process().Log())
		}
	}
}

// Rules that are wrong when the plugin starts are loaded once they are right.
func TestRulesThatComeLater(t *testing.T) {
	node := kong.Start(t, 1)
	path := rulesFile(t)
	text := mustRead(t, path)
	mustWrite(t, path, "domain: kong\ndescriptors: [{ke: user}]\n")
	config := configure(map[string]any{
		"mode": "embedded", "rules_path": path, "fault_tolerant": false,
		"descriptors": []any{map[string]any{"entries": []any{map[string]any{"key": "user", "source": "ip"}}}},
	})
	if response := must(t, node.Workers[0], config, anyone(0)); response.Status != 500 {
		t.Errorf("status %d without valid rules, want 500", response.Status)
	}
	mustWrite(t, path, text)
	await(t, func() bool { return must(t, node.Workers[0], config, anyone(0)).Status == 0 })
	mustWrite(t, path, strings.ReplaceAll(text, "limit: 2,", "limit: 200,"))
	await(t, func() bool {
		return must(t, node.Workers[0], config, anyone(0)).Headers["X-RateLimit-Limit"] == "200"
	})
}
