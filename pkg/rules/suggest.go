package rules

import (
	"fmt"
	"strings"
)

// suggest says what to write instead of a word that is none of the known ones: the nearest, or all of them.
func suggest(word string, known []string) string {
	best, distance := "", max(2, len(word)/3)+1
	if len(word) <= 64 {
		for _, candidate := range known {
			if d := editDistance(strings.ToLower(word), candidate); d < distance {
				best, distance = candidate, d
			}
		}
	}
	if best != "" {
		return fmt.Sprintf("write %q", best)
	}
	return "write one of " + strings.Join(known, ", ")
}

// editDistance counts the insertions, deletions, substitutions and swaps of neighbours between two words (the
// optimal string alignment distance, Damerau 1964).
func editDistance(a, b string) int {
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			substitute := previous[j-1]
			if a[i-1] != b[j-1] {
				substitute++
			}
			current[j] = min(previous[j]+1, current[j-1]+1, substitute)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
