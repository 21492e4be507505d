package app

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/telemetry"
)

// setUpIdentifiers makes what shows identifiers in the log.
func (a *app) setUpIdentifiers() error {
	if a.config.Log.Identifiers == config.IdentifiersPlain {
		a.identifiers = telemetry.PlainIdentifiers()
		return nil
	}
	key, err := a.config.Log.HashKey.Value()
	if err != nil {
		return fmt.Errorf("log.hash_key_file: %w", err)
	}
	a.identifiers = telemetry.HashedIdentifiers([]byte(key))
	return nil
}

// recorder counts decisions, for weir's own metrics and, if it is kept, for the statistics of envoyproxy/ratelimit. At level
// debug each is logged; below that level a decision costs no line and no test for one.
func (a *app) recorder() engine.Recorder {
	all := recorders{counted{a.metrics}}
	if a.stats != nil {
		all = append(all, a.stats)
	}
	if a.logger.Enabled(context.Background(), slog.LevelDebug) {
		all = append(all, logged{a.logger, a.identifiers})
	}
	if len(all) == 1 {
		return all[0]
	}
	return all
}

// recorders tells each what it is told.
type recorders []engine.Recorder

// Decided implements engine.Recorder.
func (all recorders) Decided(domain string, entries []ratelimit.Entry, status *engine.Status) {
	for _, each := range all {
		each.Decided(domain, entries, status)
	}
}

// UnknownDomain implements engine.Recorder.
func (all recorders) UnknownDomain(domain string, descriptors int) {
	for _, each := range all {
		each.UnknownDomain(domain, descriptors)
	}
}

// Answered implements engine.Recorder.
func (all recorders) Answered(decision *engine.Decision) {
	for _, each := range all {
		each.Answered(decision)
	}
}

// counted is the recorder of weir's own metrics.
type counted struct{ metrics *telemetry.Metrics }

// Decided implements engine.Recorder.
func (c counted) Decided(_ string, entries []ratelimit.Entry, status *engine.Status) {
	c.metrics.Decided(status.Rule, entries, status.Outcome, status.Cost)
}

// UnknownDomain implements engine.Recorder.
func (c counted) UnknownDomain(string, int) { c.metrics.UnknownDomain() }

// Answered implements engine.Recorder.
func (c counted) Answered(*engine.Decision) {}

// logged is a recorder that writes a line for each decision.
type logged struct {
	logger      *slog.Logger
	identifiers *telemetry.Identifiers
}

// Decided implements engine.Recorder.
func (l logged) Decided(domain string, entries []ratelimit.Entry, status *engine.Status) {
	var descriptor strings.Builder
	for i, entry := range entries {
		if i > 0 {
			descriptor.WriteByte(',')
		}
		fmt.Fprintf(&descriptor, "%s=%s", entry.Key, l.identifiers.Show(entry.Value))
	}
	name := ""
	if status.Rule != nil {
		domain, name = status.Rule.Domain, status.Rule.Label()
	}
	l.logger.Debug("decided", "domain", domain, "rule", name, "outcome", status.Outcome.String(), "cost", status.Cost,
		"descriptor", descriptor.String())
}

// UnknownDomain implements engine.Recorder.
func (l logged) UnknownDomain(string, int) {}

// Answered implements engine.Recorder.
func (l logged) Answered(*engine.Decision) {}
