package rules

import "strings"

// matcher compares a value with one pattern, in time linear in the value and without allocation.
type matcher interface {
	match(value string) bool
}

// wildcard is a text in which '*' stands for any characters, none included.
type wildcard struct {
	head, tail string   // before the first '*' and after the last
	middle     []string // between two of them
	whole      bool     // there is no '*': head is the whole text
}

func newWildcard(text string) wildcard {
	parts := strings.Split(text, "*")
	if len(parts) == 1 {
		return wildcard{head: text, whole: true}
	}
	w := wildcard{head: parts[0], tail: parts[len(parts)-1]}
	for _, part := range parts[1 : len(parts)-1] {
		if part != "" {
			w.middle = append(w.middle, part)
		}
	}
	return w
}

func (w wildcard) match(value string) bool {
	if w.whole {
		return value == w.head
	}
	if len(value) < len(w.head)+len(w.tail) || !strings.HasPrefix(value, w.head) || !strings.HasSuffix(value, w.tail) {
		return false
	}
	value = value[len(w.head) : len(value)-len(w.tail)]
	// Taking the first place for each part is enough: a later one leaves less for the rest.
	for _, part := range w.middle {
		at := strings.Index(value, part)
		if at < 0 {
			return false
		}
		value = value[at+len(part):]
	}
	return true
}

// everything tells whether all values match.
func (w wildcard) everything() bool {
	return !w.whole && w.head == "" && w.tail == "" && len(w.middle) == 0
}
