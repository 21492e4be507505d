package engine

import "github.com/weirhq/weir/pkg/ratelimit"

// Recorder is told about every decision, for metrics. It must be safe for concurrent use, must not block, and must not
// keep entries, whose strings are the caller's memory.
type Recorder interface {
	// Decided is called once for each descriptor of a known domain. rule is nil if nothing matched, or if an override or a
	// fallback limit applied where nothing matched. cost is what was asked for: 0 for a look, negative for giving back.
	Decided(rule *ratelimit.Rule, entries []ratelimit.Entry, outcome ratelimit.Outcome, cost int64)
	// UnknownDomain is called once for each request whose domain no rule is for; Decided is not called for it.
	UnknownDomain()
}

type silent struct{}

func (silent) Decided(*ratelimit.Rule, []ratelimit.Entry, ratelimit.Outcome, int64) {}
func (silent) UnknownDomain()                                                       {}
