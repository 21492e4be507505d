// Package docs tests that the documents say what the server does.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/test/servers"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(servers.Root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the fenced blocks of a language.
func blocks(text, language string) []string {
	var found []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// The README's commands, as they are but for the ports, on a server that `make run` would start.
func TestReadmeCommands(t *testing.T) {
	root := servers.Root(t)
	weir := servers.Weir(t, servers.WeirOptions{RulesPath: filepath.Join(root, "config", "rules")})
	replace := strings.NewReplacer("bin/weir", servers.WeirBinary(t), "localhost:50051", weir.GRPC(), "http://localhost:8080", weir.HTTP())
	run := func(command string) (string, error) {
		shell := exec.CommandContext(t.Context(), "bash", "-c", replace.Replace(command))
		shell.Dir = root
		output, err := shell.CombinedOutput()
		return string(output), err
	}

	ran := 0
	for _, block := range blocks(read(t, "README.md"), "sh") {
		if strings.Contains(block, "make ") {
			continue // the test runs inside of one of them, and the other does not end
		}
		ran++
		output, err := run(block)
		if strings.HasPrefix(block, "for ") {
			var decisions []string
			for line := range strings.Lines(output) {
				if line = strings.TrimSpace(line); line == "allowed" || line == "denied" {
					decisions = append(decisions, line)
				}
			}
			if got := strings.Join(decisions, " "); got != "allowed allowed allowed allowed allowed denied" {
				t.Errorf("%s printed %q, want five permissions and a denial:\n%s", block, got, output)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s failed: %v\n%s", block, err, output)
		}
	}
	if ran < 2 {
		t.Errorf("only %d blocks of the README were run", ran)
	}
}

// Blocks of YAML are rules, or settings if they say so by their first line.
func TestReadmeRulesAndSettings(t *testing.T) {
	for i, block := range blocks(read(t, "README.md"), "yaml") {
		if strings.HasPrefix(block, "# weir.yaml") {
			path := filepath.Join(t.TempDir(), "weir.yaml")
			if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := config.Load(config.Source{File: path}); err != nil {
				t.Errorf("the settings of block %d are not valid:\n%v", i+1, err)
			}
			continue
		}
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := rules.Load([]string{path}, rules.Options{}); err != nil {
			t.Errorf("the rules of block %d do not load:\n%v", i+1, err)
		}
	}
}

func TestReadmeNamesEveryMetric(t *testing.T) {
	redis := servers.Redis(t)
	weir := servers.Weir(t, servers.WeirOptions{
		RulesPath: filepath.Join(servers.Root(t), "config", "rules"),
		Set:       map[string]string{"redis.url": "redis://" + redis.Addr()},
	})
	_, body := weir.Get("/metrics")
	if _, again := weir.Get("/metrics"); len(again) > len(body) {
		body = again // with the metrics of the first scrape
	}
	readme := read(t, "README.md")
	names := regexp.MustCompile(`(?m)^# HELP (weir_\w+)`).FindAllStringSubmatch(body, -1)
	if len(names) < 20 {
		t.Fatalf("only %d metrics found", len(names))
	}
	for _, name := range names {
		if !strings.Contains(readme, "`"+name[1]) {
			t.Errorf("the README does not name the metric %s", name[1])
		}
	}
}

func TestReadmeLinks(t *testing.T) {
	for _, name := range []string{"README.md", "CHANGELOG.md", "docs/api.md"} {
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(read(t, name), -1) {
			if _, err := os.Stat(filepath.Join(servers.Root(t), filepath.Dir(name), link[1])); err != nil {
				t.Errorf("%s links to %s: %v", name, link[1], err)
			}
		}
	}
}
