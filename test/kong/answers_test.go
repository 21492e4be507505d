package kong_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/test/kong"
)

func rulesFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	text := `
domain: kong
descriptors:
  - {key: user, name: per-user, limits: [{algorithm: fixed_window, limit: 2, window: 1h}]}
  - {key: tenant, name: budget, limits: [{algorithm: fixed_window, limit: 1, window: 1d, kind: quota}]}
  - {key: user, value: blocked, action: deny}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// denied returns the answer to a request that is over a limit of one an hour.
func denied(t *testing.T, node *kong.Node, values map[string]any, request *kong.Request) *kong.Response {
	t.Helper()
	all := embedded(map[string]any{"limit_by": "ip", "hour": 1})
	maps.Copy(all, values)
	config := configure(all)
	must(t, node.Workers[0], config, request)
	response := must(t, node.Workers[0], config, request)
	if !response.Denied() {
		t.Fatal("the second request passed")
	}
	return response
}

func TestDenialBodies(t *testing.T) {
	node := kong.Start(t, 1)
	for name, c := range map[string]struct {
		values      map[string]any
		accept      string
		contentType string
		contains    []string
	}{
		"no Accept":        {nil, "", "application/json; charset=utf-8", []string{`"message":"API rate limit exceeded"`, `"request_id":"id-1"`}},
		"anything":         {nil, "*/*", "application/json; charset=utf-8", []string{`"request_id":"id-1"`}},
		"problem":          {nil, "application/problem+json", "application/problem+json", []string{`"status":429`, "quota-exceeded", `"request_id":"id-1"`}},
		"problem of two":   {nil, "text/html;q=0.5,application/problem+json", "application/problem+json", []string{`"title"`}},
		"html":             {nil, "text/html", "text/html; charset=utf-8", []string{"<h1>API rate limit exceeded</h1>"}},
		"text":             {nil, "text/plain", "text/plain; charset=utf-8", []string{"API rate limit exceeded\n"}},
		"message":          {map[string]any{"error_message": "slow down"}, "", "application/json; charset=utf-8", []string{`"message":"slow down"`}},
		"fixed":            {map[string]any{"error_format": "problem"}, "text/html", "application/problem+json", []string{`"violated-policies":["hour"]`}},
		"template":         {map[string]any{"error_body": `{"code":{{.Status}},"id":"{{.RequestID}}","limit":{{.Limit}},"window":{{.Window}},"name":"{{.Name}}"}`}, "", "application/json; charset=utf-8", []string{`{"code":429,"id":"id-1","limit":1,"window":3600,"name":"hour"}`}},
		"template of text": {map[string]any{"error_body": "wait {{.RetryAfter}}", "error_content_type": "text/plain"}, "", "text/plain", []string{"wait "}},
	} {
		t.Run(name, func(t *testing.T) {
			request := &kong.Request{ID: "id-1", IP: "192.0.2.1", Headers: map[string]string{"X-Other": "\xff\xfe"}}
			if c.accept != "" {
				request.Headers["Accept"] = c.accept
			}
			response := denied(t, node, c.values, request)
			if got := response.Headers["Content-Type"]; got != c.contentType {
				t.Errorf("Content-Type %q, want %q", got, c.contentType)
			}
			for _, part := range c.contains {
				if !strings.Contains(response.Body, part) {
					t.Errorf("the body does not hold %s:\n%s", part, response.Body)
				}
			}
			if strings.Contains(c.contentType, "json") && !json.Valid([]byte(response.Body)) {
				t.Errorf("no JSON: %s", response.Body)
			}
			if seconds, err := strconv.Atoi(response.Headers["Retry-After"]); err != nil || seconds < 1 || seconds > 3600 {
				t.Errorf("Retry-After %q", response.Headers["Retry-After"])
			}
		})
	}
}

// A grpc-go client reads this as RESOURCE_EXHAUSTED; with a body or another Content-Type it does not.
func TestDenialOfGRPC(t *testing.T) {
	node := kong.Start(t, 1)
	for contentType, grpc := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "Application/gRPC": true, "application/grpc; x=y": true,
		"application/grpc-web": false, "application/grpcx": false, "application/json": false,
	} {
		t.Run(contentType, func(t *testing.T) {
			request := &kong.Request{IP: "192.0.2.1", Headers: map[string]string{"Content-Type": contentType}}
			response := denied(t, node, map[string]any{"error_code": 503, "error_message": "50% off"}, request)
			is := response.Headers["Content-Type"] == "application/grpc"
			if is != grpc {
				t.Fatalf("answered as gRPC: %v, want %v", is, grpc)
			}
			if !grpc {
				if response.Status != 503 || response.Body == "" {
					t.Errorf("status %d, body %q", response.Status, response.Body)
				}
				return
			}
			if response.Status != 429 || response.Body != "" || response.Headers["grpc-message"] != "50%25 off" {
				t.Errorf("status %d, body %q, headers %v", response.Status, response.Body, response.Headers)
			}
		})
	}
}

func TestHeaderStyles(t *testing.T) {
	node := kong.Start(t, 1)
	for style, want := range map[string][]string{
		"kong": {
			"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Limit-Hour", "X-RateLimit-Limit-Minute",
			"X-RateLimit-Remaining", "X-RateLimit-Remaining-Hour", "X-RateLimit-Remaining-Minute", "X-RateLimit-Reset",
		},
		"ietf":  {"RateLimit", "RateLimit-Policy"},
		"envoy": {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"},
		"none":  nil,
	} {
		t.Run(style, func(t *testing.T) {
			config := configure(embedded(map[string]any{"limit_by": "ip", "minute": 5, "hour": 9, "header_style": style}))
			response := must(t, node.Workers[0], config, anyone(0))
			if got := slices.Sorted(maps.Keys(response.Headers)); !slices.Equal(got, want) {
				t.Errorf("headers %v, want %v", got, want)
			}
		})
	}
	t.Run("numbers", func(t *testing.T) {
		config := configure(embedded(map[string]any{"limit_by": "ip", "minute": 5, "hour": 9}))
		response := must(t, node.Workers[0], config, anyone(0))
		for name, want := range map[string]string{
			"X-RateLimit-Limit-Minute": "5", "X-RateLimit-Remaining-Minute": "4", "X-RateLimit-Limit-Hour": "9",
			"X-RateLimit-Remaining-Hour": "8", "RateLimit-Limit": "5", "RateLimit-Remaining": "4", "X-RateLimit-Limit": "5",
		} {
			if response.Headers[name] != want {
				t.Errorf("%s: %q, want %q", name, response.Headers[name], want)
			}
		}
		reset, err := strconv.ParseInt(response.Headers["X-RateLimit-Reset"], 10, 64)
		if left := time.Until(time.Unix(reset, 0)); err != nil || left < -time.Second || left > time.Minute+time.Second {
			t.Errorf("X-RateLimit-Reset %q is no time within the minute", response.Headers["X-RateLimit-Reset"])
		}
	})
	t.Run("hidden", func(t *testing.T) {
		response := denied(t, node, map[string]any{"hide_client_headers": true}, anyone(0))
		if got := slices.Sorted(maps.Keys(response.Headers)); !slices.Equal(got, []string{"Content-Type"}) {
			t.Errorf("headers %v", got)
		}
	})
	t.Run("none, denied", func(t *testing.T) {
		response := denied(t, node, map[string]any{"header_style": "none"}, anyone(0))
		if got := slices.Sorted(maps.Keys(response.Headers)); !slices.Equal(got, []string{"Content-Type", "Retry-After"}) {
			t.Errorf("headers %v", got)
		}
	})
}

func TestDryRun(t *testing.T) {
	node := kong.Start(t, 1)
	config := configure(embedded(map[string]any{"limit_by": "ip", "hour": 1, "dry_run": true}))
	for range 3 {
		response := must(t, node.Workers[0], config, anyone(0))
		if response.Denied() || response.Headers["Retry-After"] != "" {
			t.Errorf("a dry run denied: %+v", response)
		}
		if response.Headers["X-RateLimit-Remaining"] != "0" {
			t.Errorf("a dry run does not count: %v", response.Headers)
		}
	}
}

func TestCodes(t *testing.T) {
	node := kong.Start(t, 1)
	if status := denied(t, node, map[string]any{"error_code": 403}, anyone(0)).Status; status != 403 {
		t.Errorf("error_code 403 gave %d", status)
	}
	byRule := func(key, value string) *kong.Config {
		return configure(map[string]any{"mode": "embedded", "rules_path": rulesFile(t), "descriptors": []any{
			map[string]any{"entries": []any{map[string]any{"key": key, "source": "value", "value": value}}},
		}})
	}
	quota := byRule("tenant", "t1")
	must(t, node.Workers[0], quota, anyone(0))
	if response := must(t, node.Workers[0], quota, anyone(0)); response.Status != 402 {
		t.Errorf("a quota gave %d, want 402", response.Status)
	}
	response := must(t, node.Workers[0], byRule("user", "blocked"), anyone(0))
	if response.Status != 429 || response.Headers["Retry-After"] != "" {
		t.Errorf("a rule that denies gave %d, Retry-After %q", response.Status, response.Headers["Retry-After"])
	}
}

func TestCosts(t *testing.T) {
	node := kong.Start(t, 1)
	remaining := func(values map[string]any, header string) string {
		all := embedded(map[string]any{"limit_by": "ip", "hour": 100, "cost_header": "X-Cost"})
		maps.Copy(all, values)
		request := &kong.Request{IP: "192.0.2.1", Headers: map[string]string{}}
		if header != "" {
			request.Headers["x-cost"] = header
		}
		return must(t, node.Workers[0], configure(all), request).Headers["X-RateLimit-Remaining"]
	}
	for header, want := range map[string]string{
		"": "99", "10": "90", " 7 ": "93", "0": "99", "-50": "99", "lots": "99", "1e3": "99", "99999999999999999999": "99",
	} {
		if got := remaining(nil, header); got != want {
			t.Errorf("X-Cost %q leaves %s, want %s", header, got, want)
		}
	}
	if got := remaining(map[string]any{"cost": 5}, ""); got != "95" {
		t.Errorf("cost 5 leaves %s", got)
	}
	if got := remaining(map[string]any{"cost": 0}, ""); got != "100" {
		t.Errorf("a look leaves %s", got)
	}
}
