package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestBase(t *testing.T) {
	base := []Assignment{
		{Setting: "server.port", Value: "9080", From: "PORT"},
		{Setting: "log.level", Value: "warn", From: "LOG_LEVEL"},
		{Setting: "statsd.address", Value: "localhost:8125", From: "STATSD_HOST"},
		{Setting: "statsd.tags", List: []string{"a:1,2", "b:3"}, From: "EXTRA_TAGS"},
		{Setting: "server.port", Value: "9081", From: "PORT"},
	}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte("log: {level: debug}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Source{Base: base, File: file, Environ: []string{"WEIR_SERVER_GRPC_PORT=-1"}})
	if err != nil {
		t.Fatal(err)
	}
	// The later assignment counts, a list's elements may hold commas, the file and the environment beat all of them.
	if c.Server.Port != 9081 || c.Log.Level != "debug" || c.Server.GRPCPort != -1 || !slices.Equal(c.Statsd.Tags, []string{"a:1,2", "b:3"}) {
		t.Errorf("%+v, %+v, %+v", c.Server, c.Log, c.Statsd)
	}
}

func TestFaultyBase(t *testing.T) {
	_, err := Load(Source{Base: []Assignment{
		{Setting: "server.port", Value: "70000", From: "PORT"},
		{Setting: "server.grpc.max_connection_age", Value: "soon", From: "AGE"},
		{Setting: "no.such", Value: "1", From: "NOTHING"},
	}})
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("the error is %v", err)
	}
	for _, want := range []string{
		"PORT: server.port: 70000 is out of range: write 0 to 65535",
		`AGE: server.grpc.max_connection_age: "soon" is no duration`,
		"NOTHING: no.such: no such setting",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q, want one with %q", err, want)
		}
	}
}

// What Write writes says the same when it is loaded, but for secrets.
func TestWrite(t *testing.T) {
	base := []Assignment{
		{Setting: "server.port", Value: "8080"}, // the default
		{Setting: "server.grpc.max_connection_age", Value: "24h"},
		{Setting: "server.envoyproxy_endpoints", Value: "true"},
		{Setting: "redis.url", Value: "rediss://ann:sesame@redis:6379/2"},
		{Setting: "redis.password", Value: "sesame"},
		{Setting: "redis.tls.enabled", Value: "true"},
		{Setting: "statsd.address", Value: "tcp://localhost:8125"},
		{Setting: "statsd.tags", List: []string{"a: b", "true:1"}},
		{Setting: "app.version", Value: "007"},
		{Setting: "database.path", Value: ""},
		{Setting: "ratelimit.near_limit_ratio", Value: "0.5"},
	}
	text, secrets, err := Write(base)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "sesame") || strings.Contains(string(text), "8080") || strings.Contains(string(text), "redacted") {
		t.Errorf("it has a secret, or a default:\n%s", text)
	}
	if want := []string{"redis.url", "redis.password"}; !slices.Equal(secrets, want) {
		t.Errorf("secrets %q, want %q", secrets, want)
	}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(Source{File: file, Environ: []string{"WEIR_REDIS_PASSWORD=sesame"}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want, err := Load(Source{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	want.Redis.URL = "rediss://ann@redis:6379/2"
	if diff := differences(want, loaded); diff != nil {
		t.Errorf("it says something else: %s\n%s", strings.Join(diff, "; "), text)
	}
	if text, _, err := Write(nil); err != nil || len(text) > 0 {
		t.Errorf("nothing is written as %q, %v", text, err)
	}
}
