package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// `make help` lists every target, and make without a target is help.
func TestMakeHelp(t *testing.T) {
	root := servers.Root(t)
	content, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	phony := regexp.MustCompile(`(?m)^\.PHONY: (.+)$`).FindAllStringSubmatch(string(content), -1)
	if len(phony) < 10 {
		t.Fatalf("found %d targets in the Makefile", len(phony))
	}
	help := makeOutput(t, "help")
	for _, match := range phony {
		if !regexp.MustCompile(`(?m)^  ` + match[1] + ` +\S.*$`).MatchString(help) {
			t.Errorf("make help says nothing about %s:\n%s", match[1], help)
		}
	}
	if makeOutput(t) != help {
		t.Error("make without a target does not print the help")
	}
}

// Every target of which a file speaks exists.
func TestMakeTargetsThatFilesName(t *testing.T) {
	root := servers.Root(t)
	mention := regexp.MustCompile("`make ([a-z][a-z0-9-]*)")
	var files []string
	for _, pattern := range []string{"*.md", "*.yaml", ".golangci.yaml", "config/*.yaml", "envoy/*.yaml", "test/servers/*.go"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range mention.FindAllStringSubmatch(string(content), -1) {
			makeOutput(t, "--dry-run", match[1])
		}
	}
}

func makeOutput(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "make", args...)
	command.Dir = servers.Root(t)
	// A make that runs this test has told its flags to its children; they are not meant for this one.
	command.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=", "MFLAGS=")
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("make %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(output)
}
