package ruleset

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/rulestore"
)

// Stored is what ratelimit.Rule.Source says of a rule from the store.
const Stored = "api"

// anyIdentifier is the pattern of a stored rule that is for every identifier.
const anyIdentifier = "*"

// sourceOf makes definitions of stored rules, without the way over YAML text.
func sourceOf(stored []rulestore.Rule) *rules.Source {
	// Of 100,000 rules, slices that grow would copy many megabytes.
	count := map[string]int{}
	for i := range stored {
		count[stored[i].Domain]++
	}
	definitions := make(map[string][]rules.Definition, len(count))
	for domain, n := range count {
		definitions[domain] = make([]rules.Definition, 0, n)
	}
	limits := make([]ratelimit.Limit, len(stored))
	for i := range stored {
		rule := &stored[i]
		limits[i] = ratelimit.Limit{
			Algorithm: rule.Algorithm, Count: rule.Limit, Burst: rule.Burst, Window: time.Duration(rule.WindowSeconds) * time.Second,
		}
		definitions[rule.Domain] = append(definitions[rule.Domain], rules.Definition{
			ID: rule.ID, Name: printable(rule.Name), Key: rule.Scope, Value: value(rule.IdentifierPattern),
			Limits: limits[i : i+1 : i+1], Disabled: !rule.Enabled,
		})
	}
	source := &rules.Source{Name: Stored}
	for _, domain := range slices.Sorted(maps.Keys(definitions)) {
		source.Domains = append(source.Domains, rules.Domain{Name: domain, Descriptors: definitions[domain]})
	}
	return source
}

// value is a stored rule's pattern as a definition has it.
func value(pattern string) string {
	if pattern == anyIdentifier {
		return ""
	}
	return pattern
}

// printable leaves out the line ends that a rule's name must not hold but the store may.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, name)
}
