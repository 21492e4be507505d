package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// ruleSet keeps the limiter's rules current with the files.
type ruleSet struct {
	app     *app
	limiter *engine.Limiter
	watcher *rules.Watcher
	problem atomic.Pointer[string] // why the last load was refused, nil if it was good
}

// loadRules puts the rules of the files in force, or the safe default if they are not valid. Only a default limit that
// cannot be is an error: a server that people rely on starts.
func (a *app) loadRules(limiter *engine.Limiter) (*ruleSet, error) {
	settings := &a.config.Rules
	r := &ruleSet{app: a, limiter: limiter}
	r.watcher = rules.NewWatcher(settings.Paths,
		rules.Options{DefaultDomain: settings.DefaultDomain, MergeDomains: settings.MergeDomains},
		rules.WatcherOptions{Debounce: settings.Debounce, OnLoad: r.loaded, OnError: r.refused, Logger: a.logger.With("component", "rules")})

	limit := ratelimit.Limit{
		Algorithm: ratelimit.TokenBucket, Count: a.config.RateLimit.DefaultLimit, Window: a.config.RateLimit.DefaultWindow(),
	}
	safe, err := rules.Safe(limit)
	if err != nil {
		return nil, fmt.Errorf("ratelimit.default_limit: %w", err)
	}
	table, err := r.watcher.Load()
	if err == nil {
		r.loaded(table)
		return r, nil
	}
	limiter.SetTable(safe)
	a.metrics.SafeDefault()
	r.refused(err)
	a.logger.Error("no valid rules: every descriptor of every domain gets the default limit until the files are right",
		"limit", limit.Count, "window", limit.Window, "paths", settings.Paths)
	return r, nil
}

func (r *ruleSet) loaded(table *rules.Table) {
	r.limiter.SetTable(table)
	r.app.metrics.RulesLoaded(table.Rules(), table.Hash()) // after the swap, or the old rules' series come back
	r.problem.Store(nil)
	for _, warning := range table.Warnings() {
		r.app.logger.Warn("a rule is valid but probably not meant", "warning", warning.String())
	}
	r.app.logger.Info("rules loaded", "rules", table.Len(), "domains", len(table.Domains()), "hash", short(table.Hash()))
}

func (r *ruleSet) refused(err error) {
	r.app.metrics.RulesRefused()
	text := err.Error()
	r.problem.Store(&text)
	r.app.logger.Error("the rules were not loaded, those before stay in force", "error", err)
}

// ready reports why the files are not in force. It does not say what is in them beyond the first problem.
func (r *ruleSet) ready(context.Context) error {
	problem := r.problem.Load()
	if problem == nil {
		return nil
	}
	first, rest, more := strings.Cut(*problem, "\n")
	if more {
		first = fmt.Sprintf("%s (and %d more)", first, 1+strings.Count(rest, "\n"))
	}
	return errors.New(first)
}

func short(hash string) string { return hash[:min(len(hash), 12)] }
