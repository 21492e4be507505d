package rules

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestLoadFolders(t *testing.T) {
	folder := t.TempDir()
	domain := func(name string) string { return "domain: " + name + "\ndescriptors: [{key: user, action: deny}]\n" }
	for path, text := range map[string]string{
		"a.yaml":           domain("a"),
		"b.yml":            domain("b"),
		"team/c.yaml":      domain("c"),
		".hidden.yaml":     "nonsense",
		".git/d.yaml":      "nonsense",
		"..2026_01/e.yaml": domain("e"),
		"README.md":        "nonsense",
		"f.yaml.bak":       "nonsense",
		"g.yaml~":          "nonsense",
		"h.json":           "nonsense",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, path)), 0o750))
		write(t, filepath.Join(folder, path), text)
	}
	must(t, os.Symlink("..2026_01", filepath.Join(folder, "..data")))
	must(t, os.Symlink("..data/e.yaml", filepath.Join(folder, "e.yaml")))
	must(t, os.Symlink("team", filepath.Join(folder, "zteam"))) // the same files once more
	must(t, os.Symlink("nowhere", filepath.Join(folder, "dangling")))

	table, err := Load([]string{folder, filepath.Join(folder, "a.yaml")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(table.Domains(), ""); got != "abce" {
		t.Errorf("domains %s", got)
	}
	first := table.Hash()
	// One file, whatever its name.
	if table, err = Load([]string{filepath.Join(folder, "h.json")}, Options{}); err == nil {
		t.Errorf("got %v", table.Domains())
	}
	again, err := Load([]string{folder}, Options{})
	if err != nil || again.Hash() != first {
		t.Errorf("another hash, or %v", err)
	}
}

func TestLoadWhatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	missing := filepath.Join(folder, "missing.yaml")
	_, err := Load([]string{missing}, Options{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing+": cannot be read: no such file or directory") {
		t.Errorf("got %v", err)
	}
	if errors.Is(err, ErrNoRules) {
		t.Error("a missing file is not an empty set")
	}
	must(t, os.Symlink("nowhere", filepath.Join(folder, "dangling.yaml")))
	if _, err := Load([]string{folder}, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(filepath.Join(folder, "dangling.yaml")))
	if _, err := Load([]string{folder}, Options{}); !errors.Is(err, ErrNoRules) {
		t.Errorf("got %v", err)
	}
	if _, err := Load(nil, Options{}); !errors.Is(err, ErrNoRules) {
		t.Errorf("got %v", err)
	}
	pipe := filepath.Join(folder, "pipe.yaml")
	must(t, syscall.Mkfifo(pipe, 0o600))
	if _, err := Load([]string{folder}, Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

func TestLoadCollectsOverFiles(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "b.yaml"), "domain: edge\ndescriptors: [{kee: user}]\n")
	write(t, filepath.Join(folder, "a.yaml"), "domain: edge\ndescriptors: [{key: user, action: alow}, {key: ip, match: {cidr: x}}]\n")
	_, err := Load([]string{folder, filepath.Join(folder, "missing")}, Options{})
	problems := Problems(nil)
	if !errors.As(err, &problems) {
		t.Fatalf("got %v", err)
	}
	var files []string
	for _, p := range problems {
		files = append(files, filepath.Base(p.File))
	}
	if want := []string{"a.yaml", "a.yaml", "b.yaml", "b.yaml", "missing"}; !slices.Equal(slices.Compact(files), slices.Compact(want)) || len(files) < 5 {
		t.Errorf("got %v\n%v", files, err)
	}
}

func TestLoadTooLarge(t *testing.T) {
	_, problems := Parse("big.yaml", make([]byte, MaxFileSize+1))
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "too much for one file") {
		t.Errorf("got %v", problems)
	}
}

// TestScalars takes the ways in which YAML writes one value.
func TestScalars(t *testing.T) {
	rule := func(t *testing.T, fields string) *ratelimit.Rule {
		t.Helper()
		return parsed(t, "domain: edge\ndescriptors: [{"+fields+"}]\n").Rules()[0]
	}
	for fields, want := range map[string]string{
		"key: 010": "010", "key: 1_000": "1_000", "key: true": "true", "key: 1.50": "1.50", "key: 2020-01-01": "2020-01-01",
		"key: '~'": "%7E", "key: a, value: ~": "a", "key: a, value: 0x10": "a=0x10", "key: !!str 5": "5", "key: a, value: no": "a=no",
	} {
		if r := rule(t, fields+", action: deny"); r.Path != want {
			t.Errorf("%s: %s, not %s", fields, r.Path, want)
		}
	}
	for _, yes := range []string{"true", "True", "TRUE", "yes", "on", "y"} {
		if !rule(t, "key: a, action: deny, shadow_mode: "+yes).Shadow {
			t.Errorf("%s is false", yes)
		}
	}
	for _, no := range []string{"false", "no", "off", "n", "null", "~", ""} {
		if rule(t, "key: a, action: deny, shadow_mode: "+no).Shadow {
			t.Errorf("%s is true", no)
		}
	}
	for number, want := range map[string]int64{"1_000": 1000, "0x10": 16, "0o17": 15, "1e3": 1000, "5.0": 5, "+7": 7, "0": 0, "4294967295": 4294967295, "": 0} {
		if got := rule(t, "key: a, rate_limit: {unit: second, requests_per_unit: "+number+"}").Limits[0].Count; got != want {
			t.Errorf("%s: %d, not %d", number, got, want)
		}
	}
}

func TestParseWindow(t *testing.T) {
	for text, want := range map[string]string{
		"250ms": "250ms", "60s": "1m", "90s": "90s", "1h30m": "90m", "1d": "1d", "7d": "1w", "1w": "1w", "1d12h": "36h", "0.25s": "250ms", "1.5h": "90m",
	} {
		window, fix := parseWindow(text)
		if got := formatWindow(window); fix != "" || got != want {
			t.Errorf("%s: %s %s, not %s", text, got, fix, want)
		}
	}
	for _, text := range []string{"", "s", "5", "5 s", "s5", "1.2.3s", ".s", "1.5d", "-1s", "5us", "1h-30m", "99999999w", "9223372036s9223372036s"} {
		if window, fix := parseWindow(text); fix == "" {
			t.Errorf("%q is %v", text, window)
		}
	}
}

func TestSuggest(t *testing.T) {
	for word, want := range map[string]string{
		"descriptor": `write "descriptors"`, "vaule": `write "value"`, "ratelimit": `write "rate_limit"`, "Key": `write "key"`, "shadowmode": `write "shadow_mode"`,
	} {
		if got := suggest(word, descriptorFields); got != want {
			t.Errorf("%s: %s, not %s", word, got, want)
		}
	}
	if got := suggest(strings.Repeat("x", 1_000_000), matchFields); got != "write one of cidr, prefix, suffix, glob, regex" {
		t.Error(got)
	}
}
