// Command docs writes the generated parts of a document anew: what stands between "<!-- NAME: written by make generate -->"
// and the next "<!-- end -->".
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/weirhq/weir/pkg/config"
)

//go:generate go run . ../../README.md

// parts are the generated parts by their name.
var parts = map[string]func() string{"settings": config.Markdown}

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
	for name, part := range parts {
		begin := fmt.Appendf(nil, "<!-- %s: written by make generate -->\n", name)
		before, rest, found := bytes.Cut(text, begin)
		_, after, ended := bytes.Cut(rest, []byte("<!-- end -->"))
		if !found || !ended {
			return fmt.Errorf("%s has no part %q: write its two marks", path, name)
		}
		text = fmt.Appendf(nil, "%s%s\n%s\n<!-- end -->%s", before, begin, part(), after)
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // a document that everyone may read
}
