package config

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// The tags are read by name: what is wrong in one shows here and not at a user's.
func TestTags(t *testing.T) {
	seen := make(map[string]string)
	for _, s := range settings(Defaults()) {
		if s.tag.Get("yaml") == "" || s.tag.Get("yaml") != strings.ToLower(s.tag.Get("yaml")) {
			t.Errorf("%s: the yaml name is not in lower case", s.path)
		}
		doc := s.tag.Get("doc")
		if doc == "" || strings.HasSuffix(doc, ".") || strings.Contains(doc, "|") {
			t.Errorf("%s: doc %q", s.path, doc)
		}
		if other, ok := seen[s.env()]; ok {
			t.Errorf("%s and %s have the same variable %s", s.path, other, s.env())
		}
		seen[s.env()] = s.path
		number := s.value.CanInt() || s.value.CanFloat()
		lowest, hasMin := s.tag.Lookup("min")
		highest, hasMax := s.tag.Lookup("max")
		if number != hasMin || hasMin != hasMax {
			t.Errorf("%s: a number or duration has min and max, nothing else has", s.path)
		}
		if hasMin && !(bound(lowest) < bound(highest)) {
			t.Errorf("%s: %s to %s is no range", s.path, lowest, highest)
		}
		if s.value.Type() == durationType && hasMin {
			if _, err := time.ParseDuration(lowest); err != nil {
				t.Errorf("%s: min: %v", s.path, err)
			}
		}
		if fileName := strings.TrimSuffix(s.path, "_file"); fileName != s.path && strings.HasSuffix(fileName, "password") {
			if !slices.ContainsFunc(Defaults().secrets(), func(p secretPair) bool { return p.path == fileName }) {
				t.Errorf("%s: nobody reads the file", s.path)
			}
		}
	}
	if bound("x") == bound("x") || !math.IsNaN(bound("x")) {
		t.Error("a bound that cannot be read must refuse everything")
	}
}

// Every secret has a file beside it, so that no password has to stand in a configuration.
func TestSecretsHaveFiles(t *testing.T) {
	paths := make(map[string]bool)
	for _, s := range settings(Defaults()) {
		paths[s.path] = true
	}
	for _, s := range settings(Defaults()) {
		if s.value.Type() == secretType && !paths[s.path+"_file"] {
			t.Errorf("%s has no %s_file", s.path, s.path)
		}
	}
}

// Names that other packages have defined.
func TestNamesOfOthers(t *testing.T) {
	for _, s := range settings(Defaults()) {
		switch s.path {
		case "failure.mode":
			want := []string{"", ratelimit.FailOpen.String(), ratelimit.FailClosed.String(), ratelimit.FailLocal.String()}
			if !slices.Equal(s.choices(), want) {
				t.Errorf("%s: %q, want %q", s.path, s.choices(), want)
			}
		case "envoy.response_headers":
			if want := respond.StyleNames(); !slices.Equal(s.choices(), want) {
				t.Errorf("%s: %q, want %q", s.path, s.choices(), want)
			}
		case "ratelimit.default_limit":
			if bound(s.tag.Get("max")) != ratelimit.MaxCount {
				t.Errorf("%s: the greatest is %s", s.path, s.tag.Get("max"))
			}
		case "ratelimit.default_window_seconds":
			if bound(s.tag.Get("max")) != ratelimit.MaxWindow.Seconds() {
				t.Errorf("%s: the greatest is %s", s.path, s.tag.Get("max"))
			}
		}
	}
}

func TestMarkdown(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(Markdown()), "\n")
	if len(lines) != len(Fields())+2 {
		t.Fatalf("%d lines for %d settings", len(lines), len(Fields()))
	}
	for _, want := range []string{
		"| `server.port` | `8080` | `WEIR_SERVER_PORT` | HTTP port: health, metrics, API; 0 takes a free one (0 to 65535) |",
		"| `redis.password` |  | `WEIR_REDIS_PASSWORD` | Password; beats the one in the URL |",
		"| `rules.paths` | `config/rules` | `WEIR_RULES_PATHS` | Rule files and folders, relative to the working directory; with rules.xds.server the default is none |",
		"| `log.format` | `text` | `WEIR_LOG_FORMAT` | Form of a line (text or json) |",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s", want)
		}
	}
	for i, line := range lines {
		if strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 5 {
			t.Errorf("line %d is no row of four: %s", i, line)
		}
	}
}

func TestShowDuration(t *testing.T) {
	for text, want := range map[string]string{"5m": "5m", "1h": "1h", "90s": "1m30s", "1h30m": "1h30m", "250ms": "250ms", "0s": "0s", "24h": "24h", "10m": "10m", "20h0m5s": "20h0m5s"} {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := show(reflect.ValueOf(d)); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
