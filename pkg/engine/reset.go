package engine

import (
	"context"
	"slices"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Reset sets the counters of a descriptor back to never used: those of the rule that matches it now, and those of the
// further limits, which a caller names if it sends overrides or a fallback. A counter that is shared by all values that a
// pattern matches is reset for all of them. Nothing to reset is no error.
func (l *Limiter) Reset(ctx context.Context, domain string, entries []ratelimit.Entry, further ...ratelimit.Limit) error {
	keys := l.Keys(domain, entries, further...)
	if len(keys) == 0 {
		return nil
	}
	return l.store.Reset(ctx, keys)
}

// Keys returns the keys of a descriptor's counters, one for each limit of the rule that matches it now, and for each further
// limit whose window differs from all before it. An override counts where the rule's limit with the same window does.
func (l *Limiter) Keys(domain string, entries []ratelimit.Entry, further ...ratelimit.Limit) []string {
	var (
		levels []ratelimit.EntryMatch
		limits []ratelimit.Limit
	)
	if table := l.table.Load(); table != nil {
		if rule := table.Match(domain, entries).Rule; rule != nil {
			levels, limits = rule.Match, rule.Limits
		}
	}
	base := slices.Clip(l.appendBase(nil, domain, entries, levels))
	keys := make([]string, 0, len(limits)+len(further))
	seen := make(map[string]bool, cap(keys))
	add := func(limits []ratelimit.Limit, i int) {
		if key := string(appendWindow(base, limits, i)); !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	for i := range limits {
		add(limits, i)
	}
	for i := range further {
		add(further[i:i+1], 0)
	}
	return keys
}
