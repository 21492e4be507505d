package engine

import (
	"context"
	"slices"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Reset sets the counters of a descriptor back to never used: those that Keys returns. A counter that is shared by all
// values that a pattern matches is reset for all of them. Nothing to reset is no error.
func (l *Limiter) Reset(ctx context.Context, domain string, entries []ratelimit.Entry, further ...ratelimit.Limit) error {
	keys := l.Keys(domain, entries, further...)
	if len(keys) == 0 {
		return nil
	}
	return l.store.Reset(ctx, keys)
}

// Keys returns the keys of a descriptor's counters: one for each limit of the rule that matches it now, and those of further
// limits, which a caller names if it sends them as overrides or as a fallback. No key comes twice.
func (l *Limiter) Keys(domain string, entries []ratelimit.Entry, further ...ratelimit.Limit) []string {
	var rule *ratelimit.Rule
	if table := l.table.Load(); table != nil {
		rule = table.Match(domain, entries).Rule
	}
	var keys []string
	add := func(key []byte) {
		if !slices.Contains(keys, string(key)) {
			keys = append(keys, string(key))
		}
	}
	if rule != nil {
		base := slices.Clip(l.appendBase(nil, domain, entries, rule.Match))
		for i := range rule.Limits {
			add(appendWindow(base, rule.Limits, i))
		}
	}
	base := slices.Clip(l.appendBase(nil, domain, entries, nil))
	for i := range further {
		if rule == nil {
			add(appendWindow(base, further[i:i+1], 0))
		}
		add(appendOverrideWindow(base, further[i:i+1], rule))
	}
	return keys
}
