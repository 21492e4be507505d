// Package nearest finds the name that somebody most likely meant, for messages about unknown names.
package nearest

import "strings"

// maxName bounds the names that are compared, in bytes, because comparing takes time in proportion to its square.
const maxName = 128

// Name returns the known name that name was most likely meant to be, or "" if none is near: those count as near that
// differ only in case, hyphens, underscores and spaces, or by few letters for their length. Of equally near ones the first
// wins. A name of over 128 bytes is near to none.
func Name(name string, known []string) string {
	if len(name) > maxName {
		return ""
	}
	plain := Plain(name)
	best, least := "", 1+max(len(plain), 3)/3
	for _, candidate := range known {
		if d := distance(plain, Plain(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// Plain returns a name in lower case, without hyphens, underscores and spaces.
func Plain(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name))
}

// distance counts the bytes to insert, delete, replace or swap with their neighbour to turn a into b (the optimal string
// alignment distance, Damerau 1964).
func distance(a, b string) int {
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
