package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func writeFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	file := writeFile(t, "server: {port: 1001, grpc_port: 1002, host: 127.0.0.1}\n")
	c, err := Load(Source{
		File:    file,
		Environ: []string{"WEIR_SERVER_GRPC_PORT=2002", "WEIR_SERVER_HOST=127.0.0.2", "HOME=/root"},
		Flags:   map[string]string{"server.host": "127.0.0.3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Server; s.Port != 1001 || s.GRPCPort != 2002 || s.Host != "127.0.0.3" || s.DrainDelay != Defaults().Server.DrainDelay {
		t.Errorf("got %+v", s)
	}
}

// Every setting can come from each source, and arrives at its field and no other.
func TestEverySettingFromEverySource(t *testing.T) {
	for i, f := range Fields() {
		t.Run(f.Path, func(t *testing.T) {
			probe := settings(Defaults())[i]
			text := sample(probe)
			for name, source := range map[string]Source{
				"file":  {File: writeFile(t, yamlOf(f.Path, text, probe.value.Kind() == reflect.Slice))},
				"env":   {Environ: []string{f.Env + "=" + text}},
				"flags": {Flags: map[string]string{f.Path: text}},
			} {
				c := Defaults()
				places := make(map[string]place)
				var problems Problems
				if source.File != "" {
					d := decoder{file: source.File, places: places}
					raw, err := os.ReadFile(source.File)
					if err != nil {
						t.Fatal(err)
					}
					d.decode(raw, c)
					problems = d.problems
				}
				problems = append(problems, applyEnv(c, source.Environ, places)...)
				problems = append(problems, applyFlags(c, source.Flags, places)...)
				if len(problems) > 0 {
					t.Fatalf("%s: %v", name, problems)
				}
				diff := differences(Defaults(), c)
				if len(diff) != 1 || !strings.HasPrefix(diff[0], f.Path+": ") {
					t.Errorf("%s: %s=%s changed %v", name, f.Path, text, diff)
				}
				if _, ok := places[f.Path]; !ok {
					t.Errorf("%s: its place was not kept", name)
				}
			}
		})
	}
}

// sample is a value of the setting that is not its default.
func sample(s setting) string {
	switch {
	case s.value.Type() == durationType:
		return "17m"
	case s.value.Kind() == reflect.Slice:
		return "one, two"
	case s.value.Kind() == reflect.Bool:
		return map[bool]string{true: "false", false: "true"}[s.value.Bool()]
	case s.value.Kind() == reflect.Float64:
		return "0.125"
	case s.value.CanInt():
		return "77"
	default:
		return "some: text # with, marks"
	}
}

func yamlOf(path, text string, list bool) string {
	var b strings.Builder
	names := strings.Split(path, ".")
	for depth, name := range names {
		fmt.Fprintf(&b, "%s%s:", strings.Repeat("  ", depth), name)
		if depth < len(names)-1 {
			b.WriteString("\n")
		}
	}
	switch {
	case list:
		fmt.Fprintf(&b, " [%s]\n", text)
	case strings.Contains(text, ":"):
		fmt.Fprintf(&b, " %q\n", text)
	default:
		fmt.Fprintf(&b, " %s\n", text)
	}
	return b.String()
}

func TestFileForms(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // differences from the defaults
	}{
		{"empty", "", nil},
		{"comments", "# nothing\n", nil},
		{"null", "~\n", nil},
		{"empty sections", "server:\nredis: ~\nrules: {}\n", nil},
		{"empty values", "server: {host: , port: ~}\nrules: {paths: }\n", nil},
		{"a number for a text", "app: {version: 0.10}\n", []string{"app.version:  against 0.10"}},
		{"a quoted number", "server: {port: \"9000\"}\n", []string{"server.port: 8080 against 9000"}},
		{"words for a list", "rules: {paths: one, merge_domains: TRUE}\n", []string{"rules.paths: config/rules against one", "rules.merge_domains: false against true"}},
		{"an empty list", "tls: {client_names: []}\n", nil},
		{"an alias", "app: {name: &n weir, environment: *n}\n", []string{"app.name: ratelimit against weir", "app.environment: production against weir"}},
		{"a byte order mark", "\uFEFFapp: {name: weir}\n", []string{"app.name: ratelimit against weir"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := Load(Source{File: writeFile(t, test.text)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := differences(Defaults(), c); !slices.Equal(diff, test.want) {
				t.Errorf("got %q, want %q", diff, test.want)
			}
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	if _, err := Load(Source{File: filepath.Join(t.TempDir(), "absent.yaml")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := Load(Source{File: t.TempDir()}); err == nil || errors.Is(err, ErrInvalid) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Load(Source{File: writeFile(t, strings.Repeat("# a very long comment\n", maxFileBytes/20))}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge file: %v", err)
	}
	if _, err := Load(Source{File: writeFile(t, "app: {name: \"\xff\xfe\"}\n")}); !errors.Is(err, ErrInvalid) {
		t.Errorf("not UTF-8: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	tests := []struct{ name, variable, want string }{
		{"unknown", "WEIR_REDIS_URI=x", "WEIR_REDIS_URI: no setting has this variable: did you mean WEIR_REDIS_URL?"},
		{"unknown and far from all", "WEIR_=x", "WEIR_: no setting has this variable: variables that begin with WEIR_ are settings, unset or rename it"},
		{"wrong type", "WEIR_SERVER_PORT=http", `WEIR_SERVER_PORT: server.port: "http" is no whole number: write one such as 100`},
		{"out of range", "WEIR_SERVER_PORT=70000", "WEIR_SERVER_PORT: server.port: 70000 is out of range: write 0 to 65535"},
		{"empty number", "WEIR_SERVER_PORT=", `WEIR_SERVER_PORT: server.port: "" is no whole number: write one such as 100`},
		{"a link with a wrong value", "WEIR_SERVER_PORT=tcp://x", `WEIR_SERVER_PORT: server.port: "tcp://x" is no whole number: write one such as 100`},
		{"the configuration file", "WEIR_CONFIG=weir.yaml", ""},
		{"empty text", "WEIR_SERVER_GRPC_SOCKET=", ""},
		{"text with an equals sign", "WEIR_APP_NAME=a=b", ""},
		{"another program's", "WEIRD=x", ""},
		{"no equals sign", "WEIR_CONFIG", ""},
		// What Kubernetes and Docker set for services named weir, weir-server, weir-redis-master.
		{"service host", "WEIR_SERVICE_HOST=10.0.0.1", ""},
		{"service port", "WEIR_SERVICE_PORT_GRPC=50051", ""},
		{"service link", "WEIR_PORT=tcp://10.0.0.1:8080", ""},
		{"service link in full", "WEIR_PORT_8080_TCP_ADDR=10.0.0.1", ""},
		{"link with a setting's name", "WEIR_SERVER_PORT=tcp://10.0.0.1:8080", ""},
		{"link of another service", "WEIR_REDIS_MASTER_PORT_6379_TCP=tcp://10.0.0.1:6379", ""},
		{"host of another service", "WEIR_REDIS_MASTER_SERVICE_HOST=10.0.0.1", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Load(Source{Environ: []string{test.variable}})
			if got := fmt.Sprint(err); got != test.want && (test.want != "" || err != nil) {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestLists(t *testing.T) {
	c, err := Load(Source{Environ: []string{"WEIR_RULES_PATHS= one.yaml ,, two "}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Rules.Paths, []string{"one.yaml", "two"}) {
		t.Errorf("got %q", c.Rules.Paths)
	}
}

func TestFlags(t *testing.T) {
	_, err := Load(Source{Flags: map[string]string{"rules.path": "x", "server.port": "x", "nonsense.nowhere": "x"}})
	want := []string{
		"command line: nonsense.nowhere: no such setting",
		"command line: rules.path: no such setting: did you mean rules.paths?",
		`command line: server.port: "x" is no whole number: write one such as 100`,
	}
	if got := fmt.Sprint(err); got != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", got)
	}
}

// All problems of all sources are told at once.
func TestAllProblemsAtOnce(t *testing.T) {
	file := writeFile(t, "zzzzzz: 1\nserver: {port: x, grpc_port: 99999}\n")
	_, err := Load(Source{File: file, Environ: []string{"WEIR_LOG_LEVEL=x", "WEIR_XX=1"}, Flags: map[string]string{"memory.max_keys": "0"}})
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 6 {
		t.Fatalf("got:\n%v", err)
	}
	for i, want := range []string{":1:1: unknown key", ":2:16: server.port", ":2:30: server.grpc_port", "WEIR_XX", "command line: memory.max_keys", "WEIR_LOG_LEVEL"} {
		if !strings.Contains(strings.Join(strings.Split(err.Error(), "\n"), "\n"), want) {
			t.Errorf("problem %d, %q, is missing in:\n%v", i, want, err)
		}
	}
}

func TestRedisOverTLSByURL(t *testing.T) {
	c, err := Load(Source{Environ: []string{"WEIR_REDIS_URL=rediss://localhost", "WEIR_REDIS_TLS_CA_FILE=ca.pem"}})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Redis.TLS.Enabled || !c.Redis.Enabled() {
		t.Errorf("got %+v", c.Redis)
	}
}

func TestGoodRedisSettings(t *testing.T) {
	for _, text := range []string{
		"{url: redis://localhost}",
		"{url: 'redis://user:p%40ss@[::1]:6379/3'}",
		"{url: 'unix:///run/redis.sock?db=1'}",
		"{addrs: [redis:6379], db: 2, username: weir, password: x}",
		"{mode: cluster, addrs: [a:1, b:2], tls: {enabled: true, server_name: redis}}",
		"{mode: sentinel, addrs: [a:1], master_name: main, sentinel_password: x}",
	} {
		if _, err := Load(Source{File: writeFile(t, "redis: "+text+"\n")}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Anything that validates stays valid when it is written to a file and read again.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := Defaults()
		c.Server.Port = rapid.IntRange(1, 65535).Draw(rt, "port")
		c.Server.GRPCPort = c.Server.Port%65535 + 1
		c.Server.FastPort = 0
		c.Server.DrainDelay = time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(rt, "delay"))
		c.App.Name = rapid.StringMatching(`[ -~]{1,20}`).Draw(rt, "name")
		c.Failure.FallbackFraction = rapid.Float64Range(0.000001, 1).Draw(rt, "fraction")
		c.Memory.MaxKeys = rapid.IntRange(1, 1_000_000_000).Draw(rt, "keys")
		if err := c.Validate(); err != nil {
			rt.Fatal(err)
		}
		var text strings.Builder
		for _, s := range settings(c) {
			switch s.path {
			case "server.port", "server.grpc_port", "server.fast_port", "server.drain_delay", "app.name", "failure.fallback_fraction", "memory.max_keys":
				value := show(s.value)
				if s.value.Kind() == reflect.String {
					value = "'" + strings.ReplaceAll(value, "'", "''") + "'"
				}
				fmt.Fprintf(&text, "%s: {%s: %s}\n", strings.Split(s.path, ".")[0], strings.Split(s.path, ".")[1], value)
			}
		}
		d := decoder{file: "f", places: map[string]place{}}
		again := Defaults()
		for line := range strings.Lines(text.String()) { // one document each: sections repeat
			d.decode([]byte(line), again)
		}
		if len(d.problems) > 0 {
			rt.Fatalf("%v in\n%s", d.problems, text.String())
		}
		if diff := differences(c, again); diff != nil {
			rt.Fatalf("%v after\n%s", diff, text.String())
		}
	})
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, shipped) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("a: &a [*a]\nserver: &s {http: *s}\nrules: {paths: *a}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := decoder{file: "fuzz", places: map[string]place{}}
		c := Defaults()
		d.decode(text, c)
		problems := append(d.problems, c.validate()...)
		problems.sort()
		for _, problem := range problems {
			if problem.Message == "" {
				t.Errorf("a problem without a message: %+v", problem)
			}
		}
	})
}
