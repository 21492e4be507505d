package rules

import "github.com/weirhq/weir/pkg/ratelimit"

// Explanation says level by level why a descriptor matches what it matches.
type Explanation struct {
	Domain string
	Match  Match
}

// Explain is Match with reasons.
func (t *Table) Explain(domain string, entries []ratelimit.Entry) Explanation {
	return Explanation{Domain: domain, Match: t.Match(domain, entries)}
}
