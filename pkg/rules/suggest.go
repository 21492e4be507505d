package rules

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/pkg/nearest"
)

// suggest says what to write instead of a word that is none of the known ones: the nearest, or all of them.
func suggest(word string, known []string) string {
	if best := nearest.Name(word, known); best != "" {
		return fmt.Sprintf("write %q", best)
	}
	return "write one of " + strings.Join(known, ", ")
}
