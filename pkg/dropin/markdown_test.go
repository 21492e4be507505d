package dropin_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/dropin"
)

const document = "../../docs/envoyproxy-ratelimit.md"

// The document is up to date: `make generate` writes it.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for name, part := range map[string]string{"variables": dropin.Markdown(), "differences": dropin.MarkdownDifferences()} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s: the part %q is not up to date: run make generate", document, name)
		}
	}
}

// Settings that the documentation of a variable names exist.
func TestDocumentedSettings(t *testing.T) {
	settings := map[string]bool{}
	for _, field := range config.Fields() {
		settings[field.Path] = true
		for path := field.Path; strings.Contains(path, "."); {
			path = path[:strings.LastIndexByte(path, '.')]
			settings[path] = true
		}
	}
	for _, variable := range dropin.Variables() {
		for i, word := range strings.Split(variable.Doc, "`") {
			word, _, _ = strings.Cut(word, ":")
			if i%2 == 1 && strings.Contains(word, ".") && !strings.ContainsAny(word, "*/") && !settings[word] {
				t.Errorf("%s: there is no setting %s", variable.Name, word)
			}
		}
	}
}
