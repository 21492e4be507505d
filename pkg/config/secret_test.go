package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gopkg.in/yaml.v3"
)

func value(t *testing.T, s Secret) string {
	t.Helper()
	text, err := s.Value()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSecretFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := SecretFromFile(path)
	if _, err := s.Value(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before there is a file: %v", err)
	}
	for _, test := range []struct{ text, want string }{
		{"sesame", "sesame"},
		{"sesame2\n", "sesame2"},
		{"with space \r\n\n", "with space "},
		{"\nline", "\nline"},
		{"", "\nline"},     // just being written
		{"\n\n", "\nline"}, // the same
		{strings.Repeat("x", maxSecretBytes+1), "\nline"},
		{"sesame3", "sesame3"},
	} {
		write(test.text)
		if got := value(t, s); got != test.want {
			t.Errorf("%.20q: got %.20q, want %q", test.text, got, test.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := value(t, s); got != "sesame3" {
		t.Errorf("after the file went away: %q", got)
	}
}

// Kubernetes swaps the folder of a Secret by a symlink.
func TestSecretOfASwappedFolder(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, text string) {
		t.Helper()
		folder := filepath.Join(dir, version)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "password"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	publish("..2026_01", "first")
	if err := os.Symlink(filepath.Join("..data", "password"), filepath.Join(dir, "password")); err != nil {
		t.Fatal(err)
	}
	s := SecretFromFile(filepath.Join(dir, "password"))
	if got := value(t, s); got != "first" {
		t.Errorf("got %q", got)
	}
	publish("..2026_02", "other")
	if got := value(t, s); got != "other" {
		t.Errorf("after the swap: %q", got)
	}
}

func TestSecretIsSafeForConcurrentUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := SecretFromFile(path)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				if text, err := s.Value(); err != nil || text != "sesame" {
					t.Errorf("got %q, %v", text, err)
				}
			}
		})
	}
	group.Wait()
}

func TestSecretsAreNotShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Defaults()
	c.Redis.URL = "redis://user:sesame@localhost:6379/0?password=sesame"
	c.Redis.Password = NewSecret("sesame")
	c.Database.Password = SecretFromFile(path)
	if text := value(t, c.Database.Password); text != "sesame" {
		t.Fatal(text)
	}
	var text bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Info("settings", "redis", c.Redis, "url", c.Redis.URL, "password", c.Redis.Password)
	slog.New(slog.NewJSONHandler(&text, nil)).Info("settings", "redis", c.Redis, "url", c.Redis.URL, "password", c.Redis.Password)
	fmt.Fprintf(&text, "%v %+v %#v %v", c, c, c, *c)
	fmt.Fprintf(&text, "%v %#v %s %q %d", c.Redis, c.Redis, c.Redis.URL, c.Redis.Password, c.Redis.Password)
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		out, err := marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(out)
	}
	fmt.Fprint(&text, Fields(), differences(Defaults(), c))
	if i := strings.Index(text.String(), "sesame"); i >= 0 {
		t.Errorf("a secret is shown: %s", text.String()[max(0, i-60):i+6])
	}
	if !strings.Contains(text.String(), redacted) || !strings.Contains(text.String(), "localhost:6379") {
		t.Error("the rest is not shown")
	}
}

func TestURL(t *testing.T) {
	tests := []struct{ url, want string }{
		{"", ""},
		{"redis://localhost:6379/0", "redis://localhost:6379/0"},
		{"redis://:sesame@localhost", "redis://:xxxxx@localhost"},
		{"redis://user:sesame@localhost", "redis://user:xxxxx@localhost"},
		{"unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"},
		{"redis://localhost?password=sesame&db=1", "redis://localhost?db=1&password=xxxxx"},
		{"redis:sesame@localhost", redacted},
		{"sesame", redacted},
		{"redis://%zz:sesame@localhost", redacted},
	}
	for _, test := range tests {
		if got := URL(test.url).String(); got != test.want {
			t.Errorf("%s: got %s, want %s", test.url, got, test.want)
		}
	}
	if NewSecret("").String() != "" || !NewSecret("").IsZero() || (Secret{}).String() != "" {
		t.Error("no secret is shown as one")
	}
}
