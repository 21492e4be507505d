package ratelimit

// MatchKind is the way in which a rule's level compares its value with an entry's.
type MatchKind uint8

// The kinds, in the order of precedence: exact, then the patterns (which are equal among themselves), then any value.
const (
	MatchExact    MatchKind = iota + 1
	MatchWildcard           // '*' stands for any characters, several allowed; in the value or in the key
	MatchPrefix
	MatchSuffix
	MatchGlob  // path segments: '*' is one whole or part of a segment, '**' any number of segments
	MatchRegex // RE2, on the whole value
	MatchCIDR
	MatchAny // a bare key
)

// EntryMatch is one level of a rule.
type EntryMatch struct {
	Key  string
	Kind MatchKind
	// Pattern is the value, pattern or CIDR as written; empty for MatchAny.
	Pattern string
	// Shared makes one counter for all values that the pattern matches: the pattern stands for the value in the key.
	Shared bool
	// ValueToMetric puts the run-time value of this level into the rule's metric label.
	ValueToMetric bool
}

// Action is what a rule does with a descriptor that it matches.
type Action uint8

// The actions.
const (
	ActionLimit Action = iota // count, and deny above the limits
	ActionAllow               // allow, count nothing
	ActionDeny                // deny, count nothing
)

// Rule is one place in the rules where limits or an action stand. It is immutable once its table is in use; comparing
// pointers tells rules of one table apart, IDs tell them apart across reloads.
type Rule struct {
	ID     string // as written, else a UUIDv5 of domain and path
	Name   string // as written (name, or rate_limit.name); may be empty. Never holds control characters
	Domain string
	// Path is how logs, metrics and people call the rule when it has no name: "plan=free|user", "default".
	Path   string
	Match  []EntryMatch // empty for a domain's default
	Limits []Limit      // all must allow; charged together or not at all. Empty with Unlimited or an Action
	Action Action

	Unlimited bool // always allowed, nothing counted
	Shadow    bool // counted, never enforced
	QuotaMode bool // see the fold in package engine
	Disabled  bool // as if it were not there, but it keeps its place
	// DetailedMetric puts the run-time values of all levels into the metric label.
	DetailedMetric bool
	// Replaces names the matched rules of the same request that this one drops.
	Replaces  []string
	OnFailure FailureMode
	Metadata  map[string]any // merged into the reply's dynamic metadata; nil if none
	Source    string         // where it comes from: "FILE:LINE", or "api"
}

// Label is the rule's name for people: Name, or else Path.
func (r *Rule) Label() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Path
}
