package rules

import (
	"errors"
	"slices"
	"strings"
)

// glob compares paths segment by segment. In a segment '*' stands for any characters but '/'; a segment '**' stands for
// any number of segments, none included.
type glob struct {
	segments []globSegment
}

type globSegment struct {
	text wildcard
	any  bool // '**'
}

func newGlob(text string) (glob, error) {
	var g glob
	for part := range strings.SplitSeq(text, "/") {
		if part != "**" && strings.Contains(part, "**") {
			return glob{}, errors.New("'**' shares a segment with other characters")
		}
		g.segments = append(g.segments, globSegment{text: newWildcard(part), any: part == "**"})
	}
	return g, nil
}

// match walks pattern and path together. After a '**' it tries the rest at each later segment; only the last '**' is ever
// gone back to, because an earlier one could only leave less of the path.
func (g glob) match(path string) bool {
	const end = -1 // the path has no more segments
	segment := func(from int) (text string, next int) {
		if i := strings.IndexByte(path[from:], '/'); i >= 0 {
			return path[from : from+i], from + i + 1
		}
		return path[from:], end
	}
	at, from := 0, 0
	retryAt, retryFrom := end, end
	for {
		switch {
		case at < len(g.segments) && g.segments[at].any:
			at++
			retryAt, retryFrom = at, from
			continue
		case at == len(g.segments) && from == end:
			return true
		case at < len(g.segments) && from != end:
			text, next := segment(from)
			if g.segments[at].text.match(text) {
				at, from = at+1, next
				continue
			}
		}
		if retryAt == end || retryFrom == end {
			return false
		}
		_, retryFrom = segment(retryFrom)
		at, from = retryAt, retryFrom
	}
}

// prefix and suffix are literal text with which every matching path begins and ends.
func (g glob) prefix() string {
	var b strings.Builder
	for i, s := range g.segments {
		if s.any {
			break
		}
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(s.text.head)
		if !s.text.whole {
			break
		}
	}
	return b.String()
}

func (g glob) suffix() string {
	var suffix string
	for i, s := range slices.Backward(g.segments) {
		if s.any {
			break
		}
		if i < len(g.segments)-1 {
			suffix = "/" + suffix
		}
		if !s.text.whole {
			return s.text.tail + suffix
		}
		suffix = s.text.head + suffix
	}
	return suffix
}
