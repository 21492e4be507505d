package stats

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ErrMogrifier is wrapped by the errors of ParseMogrifier.
var ErrMogrifier = errors.New("bad mogrifier")

// Mogrifier turns parts of a name into tags, for DogStatsD.
type Mogrifier struct {
	pattern *regexp.Regexp
	name    string
	tags    []string // KEY:VALUE
}

// ParseMogrifier reads "PATTERN => NAME" or "PATTERN => NAME TAG:VALUE,TAG:VALUE". PATTERN is an RE2 expression; in NAME and
// VALUE $1 stands for what its first group matched, $0 for the whole match.
func ParseMogrifier(text string) (Mogrifier, error) {
	pattern, rest, found := strings.Cut(text, " => ")
	if !found {
		return Mogrifier{}, fmt.Errorf("%w: %q has no \" => \" between a pattern and a name", ErrMogrifier, text)
	}
	name, tags, _ := strings.Cut(strings.TrimSpace(rest), " ")
	var list []string
	for tag := range strings.SplitSeq(tags, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			list = append(list, tag)
		}
	}
	return NewMogrifier(strings.TrimSpace(pattern), name, list)
}

// NewMogrifier is ParseMogrifier of parts: tags are KEY:VALUE.
func NewMogrifier(pattern, name string, tags []string) (Mogrifier, error) {
	if pattern == "" || name == "" {
		return Mogrifier{}, fmt.Errorf("%w: it needs a pattern and a name, and has %q and %q", ErrMogrifier, pattern, name)
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return Mogrifier{}, fmt.Errorf("%w: %w", ErrMogrifier, err)
	}
	for _, tag := range tags {
		if key, value, _ := strings.Cut(tag, ":"); key == "" || value == "" {
			return Mogrifier{}, fmt.Errorf("%w: %q is no tag, write KEY:VALUE", ErrMogrifier, tag)
		}
	}
	return Mogrifier{pattern: compiled, name: name, tags: tags}, nil
}

// mogrify returns the name and the tags that the first mogrifier whose pattern matches makes of a name.
func mogrify(all []Mogrifier, name string) (string, []string) {
	for i := range all {
		matches := all[i].pattern.FindStringSubmatch(name)
		if matches == nil {
			continue
		}
		tags := make([]string, len(all[i].tags))
		for j, tag := range all[i].tags {
			tags[j] = filled(tag, matches)
		}
		return filled(all[i].name, matches), tags
	}
	return name, nil
}

var group = regexp.MustCompile(`\$\d+`)

// filled puts what groups matched in the place of $0, $1 and so on. One without a group stays as it is written.
func filled(text string, matches []string) string {
	return group.ReplaceAllStringFunc(text, func(found string) string {
		if n, err := strconv.Atoi(found[1:]); err == nil && n < len(matches) {
			return matches[n]
		}
		return found
	})
}
