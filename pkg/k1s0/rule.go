package k1s0

import (
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/ruleset"
	"github.com/weirhq/weir/pkg/rulestore"
)

// What Rule.Source says.
const (
	SourceAPI          = "api"
	SourceFile         = "file"
	SourceControlPlane = "xds"
)

// anyIdentifier is the pattern of a rule for every identifier.
const anyIdentifier = "*"

// Rule is a rule of the store, of a file or of a control plane. What is said of those of files goes for both of the latter.
type Rule struct {
	ID, Name, Domain string
	// Scope and Pattern are empty for a file's rule of another form; see Path.
	Scope, Pattern       string
	Path                 string
	Enabled              bool
	Limits               []ratelimit.Limit // empty for an action, and for a rule that is unlimited
	Action               ratelimit.Action
	Source               string
	CreatedAt, UpdatedAt time.Time // zero for a file's rule
	Version              int64     // 0 for a file's rule
	// Conflict says why a stored rule that is enabled is not in force; empty if it is.
	Conflict string

	compiled *ratelimit.Rule // for a file's rule
}

// limit is the first limit, zero if there is none.
func (r *Rule) limit() ratelimit.Limit {
	if len(r.Limits) == 0 {
		return ratelimit.Limit{}
	}
	return r.Limits[0]
}

// key is SCOPE:PATTERN, empty for a rule that has no such form.
func (r *Rule) key() string {
	if r.Scope == "" || r.Pattern == "" {
		return ""
	}
	return r.Scope + ":" + r.Pattern
}

// RuleInput is a rule to be written.
type RuleInput struct {
	Name           string // empty: SCOPE-PATTERN
	Scope, Pattern string
	Limit          int64
	WindowSeconds  int64
	Algorithm      string // empty: token_bucket
	Burst          int64  // 0: the algorithm's own
	Enabled        bool
}

// stored is the input, which is valid, as the store takes it.
func (in *RuleInput) stored(domain string) rulestore.Rule {
	algorithm, _ := ratelimit.ParseAlgorithm(in.Algorithm) // checked before
	return rulestore.Rule{
		Domain: domain, Scope: in.Scope, IdentifierPattern: in.Pattern, Enabled: in.Enabled,
		Name: in.Name, Limit: in.Limit, WindowSeconds: in.WindowSeconds, Algorithm: algorithm, Burst: in.Burst,
	}
}

// storedRule describes a rule of the store.
func (s *Service) storedRule(stored *rulestore.Rule) Rule {
	limit := ratelimit.Limit{
		Algorithm: stored.Algorithm, Count: stored.Limit, Burst: stored.Burst, Window: time.Duration(stored.WindowSeconds) * time.Second,
	}
	_ = limit.Check() // fills in the burst; the store holds valid rules only
	rule := Rule{
		ID: stored.ID, Name: stored.Name, Domain: stored.Domain, Scope: stored.Scope, Pattern: stored.IdentifierPattern,
		Path: stored.Scope, Enabled: stored.Enabled, Limits: []ratelimit.Limit{limit}, Source: SourceAPI,
		CreatedAt: stored.CreatedAt, UpdatedAt: stored.UpdatedAt, Version: stored.Version,
	}
	if stored.IdentifierPattern != anyIdentifier {
		rule.Path += "=" + stored.IdentifierPattern
	}
	if s.Rules.View().Overridden(stored.ID) {
		rule.Conflict = "a rule file has a rule for the same place"
	}
	return rule
}

// fileRule describes a rule of a file or of a control plane.
func (s *Service) fileRule(compiled *ratelimit.Rule) Rule {
	source := SourceFile
	if ruleset.FromControlPlane(compiled) {
		source = SourceControlPlane
	}
	rule := Rule{
		ID: compiled.ID, Name: compiled.Label(), Domain: compiled.Domain, Path: compiled.Path,
		Enabled: !compiled.Disabled, Limits: compiled.Limits, Action: compiled.Action, Source: source, compiled: compiled,
	}
	if compiled.Domain != s.Domain || len(compiled.Match) != 1 {
		return rule
	}
	rule.Scope = compiled.Match[0].Key
	switch compiled.Match[0].Kind {
	case ratelimit.MatchAny:
		rule.Pattern = anyIdentifier
	case ratelimit.MatchExact, ratelimit.MatchWildcard:
		rule.Pattern = compiled.Match[0].Pattern
	case ratelimit.MatchPrefix, ratelimit.MatchSuffix, ratelimit.MatchGlob, ratelimit.MatchRegex, ratelimit.MatchCIDR:
	}
	return rule
}
