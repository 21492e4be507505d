package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// errNotReset is the error of a reset that the store's guard answered in its place.
var errNotReset = errors.New("the store is unavailable")

// Reset sets the counters of a descriptor back to never used: those that Keys returns. A counter that is shared by all
// values that a pattern matches is reset for all of them. Nothing to reset is no error.
func (l *Limiter) Reset(ctx context.Context, domain string, entries []ratelimit.Entry, further ...ratelimit.Limit) error {
	var keys []string
	var shared []ratelimit.Charge
	for _, c := range l.counters(domain, entries, further) {
		if !c.limit.EnvoyKey {
			keys = append(keys, c.key)
			continue
		}
		// The store knows which window it is in. Giving back more than was taken leaves nothing taken.
		shared = append(shared, ratelimit.Charge{
			Hits: []ratelimit.Hit{{Key: c.key, Limit: c.limit, Cost: -ratelimit.MaxCost}}, Results: make([]ratelimit.Result, 1),
		})
	}
	if len(keys) > 0 {
		if err := l.store.Reset(ctx, keys); err != nil {
			return err
		}
	}
	if len(shared) == 0 {
		return nil
	}
	l.store.Take(ctx, shared)
	for i := range shared {
		switch {
		case shared[i].Err != nil:
			return shared[i].Err
		case shared[i].Degraded != ratelimit.FailureDefault:
			return errNotReset
		}
	}
	return nil
}

// Keys returns the keys of a descriptor's counters: one for each limit of the rule that matches it now, and those of further
// limits, which a caller names if it sends them as overrides or as a fallback. No key comes twice. Those of
// envoyproxy/ratelimit's form lack the start of their window.
func (l *Limiter) Keys(domain string, entries []ratelimit.Entry, further ...ratelimit.Limit) []string {
	var keys []string
	for _, c := range l.counters(domain, entries, further) {
		keys = append(keys, c.key)
	}
	return keys
}

// counter is a place where hits are counted.
type counter struct {
	key   string
	limit *ratelimit.Limit
}

func (l *Limiter) counters(domain string, entries []ratelimit.Entry, further []ratelimit.Limit) []counter {
	var rule *ratelimit.Rule
	if table := l.table.Load(); table != nil {
		rule = table.Match(domain, entries).Rule
	}
	var counters []counter
	add := func(key []byte, limit *ratelimit.Limit) {
		if !slices.ContainsFunc(counters, func(c counter) bool { return c.key == string(key) }) {
			counters = append(counters, counter{string(key), limit})
		}
	}
	if rule != nil {
		base := slices.Clip(l.appendBase(nil, domain, entries, rule.Match))
		for i := range rule.Limits {
			if limit := &rule.Limits[i]; limit.EnvoyKey {
				add(l.appendEnvoyKey(nil, domain, entries, rule.Match), limit)
			} else {
				add(appendWindow(base, rule.Limits, i), limit)
			}
		}
	}
	base := slices.Clip(l.appendBase(nil, domain, entries, nil))
	for i := range further {
		limit := &further[i]
		if rule == nil {
			add(appendWindow(base, further[i:i+1], 0), limit)
		}
		if l.options.EnvoyKeys && countsLikeEnvoy(limit) {
			if checked := l.overrides.intern(limit, true); checked != nil {
				add(l.appendEnvoyKey(nil, domain, entries, nil), &checked[0])
			}
			continue
		}
		add(appendOverrideWindow(base, further[i:i+1], rule), limit)
	}
	return counters
}
