package ruleset

import (
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
	source := &rules.Source{Name: Stored}
	at := map[string]int{}
	for i := range stored {
		rule := &stored[i]
		n, ok := at[rule.Domain]
		if !ok {
			n = len(source.Domains)
			at[rule.Domain] = n
			source.Domains = append(source.Domains, rules.Domain{Name: rule.Domain})
		}
		source.Domains[n].Descriptors = append(source.Domains[n].Descriptors, definitionOf(rule))
	}
	return source
}

func definitionOf(rule *rulestore.Rule) rules.Definition {
	return rules.Definition{
		ID: rule.ID, Name: printable(rule.Name), Key: rule.Scope, Value: value(rule.IdentifierPattern),
		Limits: []ratelimit.Limit{{
			Algorithm: rule.Algorithm, Count: rule.Limit, Burst: rule.Burst, Window: time.Duration(rule.WindowSeconds) * time.Second,
		}},
		Disabled: !rule.Enabled,
	}
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
