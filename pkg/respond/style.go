package respond

import (
	"fmt"
	"strings"
)

// Style is a set of header styles. Styles combine with |; where two write a header of the same name, the one that is
// declared first below writes it.
type Style uint8

// The styles. The zero value writes no header but Retry-After.
const (
	// XRateLimit writes X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, by default in Unix seconds.
	XRateLimit Style = 1 << iota
	// Envoy writes the same names as Envoy's DRAFT_VERSION_03 does: the limit followed by all policies with their names,
	// and the reset in seconds from now.
	Envoy
	// Draft03 writes RateLimit-Limit (followed by all policies), RateLimit-Remaining and RateLimit-Reset (seconds from now),
	// as draft-polli-ratelimit-headers-03 says.
	Draft03
	// Kong writes what Kong's own plugin does: RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset as plain numbers, and
	// for each window X-RateLimit-Limit-Minute and X-RateLimit-Remaining-Minute (Second, Hour, Day, Month, Year; a window of
	// another length is named by its seconds).
	Kong
	// IETF writes RateLimit and RateLimit-Policy, as draft-ietf-httpapi-ratelimit-headers-11 says.
	IETF
	// Custom writes plain numbers under the names of Options.Names; the reset is in seconds from now.
	Custom
)

var styleNames = []struct {
	style Style
	name  string
}{
	{XRateLimit, "x-ratelimit"},
	{Envoy, "envoy"},
	{Draft03, "draft-03"},
	{Kong, "kong"},
	{IETF, "ietf"},
	{Custom, "custom"},
}

// StyleNames returns the names that ParseStyle knows, in the order of the constants.
func StyleNames() []string {
	names := make([]string, len(styleNames))
	for i, s := range styleNames {
		names[i] = s.name
	}
	return names
}

// ParseStyle reads a set of styles: names joined by commas, spaces allowed, in any order; "none" and the empty string are
// the empty set. The error names the word that is unknown and lists the known ones.
func ParseStyle(text string) (Style, error) {
	var styles Style
	for word := range strings.SplitSeq(text, ",") {
		word = strings.ToLower(strings.TrimSpace(word))
		if word == "" || word == "none" {
			continue
		}
		style := styleByName(word)
		if style == 0 {
			return 0, fmt.Errorf("unknown header style %q: write one or more of %s, or none", word, strings.Join(StyleNames(), ", "))
		}
		styles |= style
	}
	return styles, nil
}

func styleByName(name string) Style {
	for _, s := range styleNames {
		if s.name == name {
			return s.style
		}
	}
	return 0
}

// String returns the set in the form that ParseStyle reads.
func (s Style) String() string {
	var names []string
	for _, known := range styleNames {
		if s&known.style != 0 {
			names = append(names, known.name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}
