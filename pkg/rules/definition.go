package rules

import (
	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Source is what one file, database or control plane contributes to a table. Parse makes one from YAML; others fill it in.
type Source struct {
	Name    string // stands as File in problems, and in Rule.Source
	Domains []Domain
}

// Domain is one domain's part of a source.
type Domain struct {
	Name        string // empty: Options.DefaultDomain
	Descriptors []Definition
	Default     *Definition // what descriptors get that match nothing; Key, Value, Match and Descriptors do not count

	node     *yaml.Node
	nameless bool // the name is missing, which is reported already
}

// Definition is one descriptor of the rules: which entry it matches, and what applies to it. Everything but Key may be
// left zero. Compile does not change it; it must not change while a table that was compiled from it is in use.
type Definition struct {
	ID, Name string
	Key      string
	// Value is what the entry's value must be. Empty: any value, each with its own counter. A '*' in it, or in Key, stands
	// for any characters.
	Value string
	// Match is a pattern of another kind, in place of Value.
	Match *Pattern
	// Priority puts patterns of one level before others: higher first.
	Priority int

	// RateLimit is a limit in envoyproxy/ratelimit's terms, in place of Limits.
	RateLimit *RateLimit
	Limits    []ratelimit.Limit
	Action    ratelimit.Action
	// Lease is that of the definition's one limit, of either form. The zero value is none.
	Lease ratelimit.Lease

	Descriptors []Definition // the next entry's level

	Shadow, QuotaMode, Disabled   bool
	DetailedMetric, ValueToMetric bool
	ShareThreshold                bool
	OnFailure                     ratelimit.FailureMode
	Metadata                      map[string]any

	node  *yaml.Node
	short bool // node is an item of rules
}

// Pattern is a way to compare values that has no place in a plain value.
type Pattern struct {
	Kind ratelimit.MatchKind // MatchPrefix, MatchSuffix, MatchGlob, MatchRegex or MatchCIDR
	Text string
}

// RateLimit is a limit as envoyproxy/ratelimit writes it.
type RateLimit struct {
	Unit            string // second, minute, hour, day, week, month, year; any case
	UnitMultiplier  uint32 // 0 means 1
	RequestsPerUnit uint32 // 0 denies everything
	Unlimited       bool   // must not come with a unit
	Name            string
	Replaces        []string // names of the matched rules that this one drops
}
