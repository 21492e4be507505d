// Command docs writes the generated parts of a document anew: what stands between "<!-- NAME: written by make generate -->"
// and the next "<!-- end -->".
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/dropin"
)

//go:generate go run . ../../README.md ../../docs/envoyproxy-ratelimit.md

// parts are the generated parts by their name.
var parts = map[string]func() string{
	"settings": config.Markdown, "variables": dropin.Markdown, "differences": dropin.MarkdownDifferences,
}

func main() {
	for _, path := range os.Args[1:] {
		if err := write(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func write(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	written := 0
	for name, part := range parts {
		begin := fmt.Appendf(nil, "<!-- %s: written by make generate -->\n", name)
		before, rest, found := bytes.Cut(text, begin)
		if !found {
			continue // in another document
		}
		_, after, ended := bytes.Cut(rest, []byte("<!-- end -->"))
		if !ended {
			return fmt.Errorf("%s: the part %q has no end: write its second mark", path, name)
		}
		written++
		text = fmt.Appendf(nil, "%s%s\n%s\n<!-- end -->%s", before, begin, part(), after)
	}
	if written == 0 {
		return fmt.Errorf("%s has no part that is generated: write the two marks of one", path)
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // a document that everyone may read
}
