package dropin

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// check reads a value and returns what is wrong with it, and what to write instead.
func (k Kind) check(value string) error {
	switch k {
	case Bool:
		if _, err := strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%q is neither true nor false: write one of them", value)
		}
	case Integer:
		if _, err := strconv.ParseInt(value, 0, 64); err != nil {
			if strings.Contains(value, "://") {
				return fmt.Errorf("%q is no whole number: Kubernetes has set it for a Service of that name, set it yourself, or enableServiceLinks: false for the Pod", value)
			}
			return fmt.Errorf("%q is no whole number: write one such as 100", value)
		}
	case Number:
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return fmt.Errorf("%q is no number: write one such as 0.8", value)
		}
	case Duration:
		if _, err := time.ParseDuration(value); err != nil {
			return fmt.Errorf("%q is no duration: write one such as 250ms, 30s or 24h", value)
		}
	case Map:
		for pair := range strings.SplitSeq(value, ",") {
			if name, _, ok := strings.Cut(pair, ":"); value != "" && (!ok || name == "") {
				return fmt.Errorf("%q is no list of NAME:VALUE: write one such as region:eu,tier:web", value)
			}
		}
	case Text, List:
	}
	return nil
}

func listOf(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	return strings.Split(value, ",")
}

// pair is one of a Map.
type pair struct{ name, value string }

// pairsOf reads a Map that check has accepted. Of two with one name the later one counts.
func pairsOf(value string) []pair {
	var pairs []pair
	for _, text := range listOf(value) {
		name, value, _ := strings.Cut(text, ":")
		at := len(pairs)
		for i := range pairs {
			if pairs[i].name == name {
				at = i
			}
		}
		if at == len(pairs) {
			pairs = append(pairs, pair{name: name})
		}
		pairs[at].value = value
	}
	return pairs
}
