package config

import "strings"

// maxName bounds the names that are compared: no setting's is longer.
const maxName = 128

// nearest returns the known name that name was most likely meant to be, or "" if none is near: those count as near that
// differ only in case, hyphens and underscores, or by few letters for their length.
func nearest(name string, known []string) string {
	if len(name) > maxName {
		return ""
	}
	plain := plainName(name)
	best, least := "", 1+max(len(plain), 3)/3
	for _, candidate := range known {
		if d := distance(plain, plainName(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

func plainName(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name))
}

// distance counts the bytes to insert, delete, replace or swap with their neighbour to turn a into b (optimal string
// alignment).
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		above := row
		row = make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before = above
	}
	return row[len(b)]
}
