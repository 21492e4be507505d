package app

import (
	"fmt"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/ruleset"
)

// newRules prepares what keeps the limiter's rules current. Only a default limit that cannot be is an error: a server that
// people rely on starts.
func (a *app) newRules(limiter *engine.Limiter) (*ruleset.Set, error) {
	settings := &a.config.Rules
	compile := rules.Options{DefaultDomain: settings.DefaultDomain, MergeDomains: settings.MergeDomains, EnvoyKeys: a.config.RateLimit.EnvoyKeys()}
	set, err := ruleset.New(ruleset.Options{
		Paths:    settings.Paths,
		Rules:    compile,
		Debounce: settings.Debounce,
		Default:  a.defaultLimit(), NoDefault: !settings.SafeDefault,
		Install:  limiter.SetTable,
		Observer: a.rulesObserver(),
		Logger:   a.logger.With("component", "rules"),
	})
	if err != nil {
		return nil, fmt.Errorf("ratelimit.default_limit: %w", err)
	}
	return set, a.followControlPlane(set, compile)
}

// defaultLimit is what applies where no rule does.
func (a *app) defaultLimit() ratelimit.Limit {
	return ratelimit.Limit{
		Algorithm: ratelimit.TokenBucket, Count: a.config.RateLimit.DefaultLimit, Window: a.config.RateLimit.DefaultWindow(),
	}
}
