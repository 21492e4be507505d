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

// recorder counts decisions and, at level debug, logs each of them. Below that level a decision costs no line and no test
// for one.
func (a *app) recorder() engine.Recorder {
	if !a.logger.Enabled(context.Background(), slog.LevelDebug) {
		return a.metrics
	}
	return logged{a.metrics, a.logger, a.identifiers}
}

// logged is a recorder that writes a line for each decision.
type logged struct {
	*telemetry.Metrics
	logger      *slog.Logger
	identifiers *telemetry.Identifiers
}

// Decided implements engine.Recorder.
func (l logged) Decided(rule *ratelimit.Rule, entries []ratelimit.Entry, outcome ratelimit.Outcome, cost int64) {
	l.Metrics.Decided(rule, entries, outcome, cost)
	var descriptor strings.Builder
	for i, entry := range entries {
		if i > 0 {
			descriptor.WriteByte(',')
		}
		fmt.Fprintf(&descriptor, "%s=%s", entry.Key, l.identifiers.Show(entry.Value))
	}
	domain, name := "", ""
	if rule != nil {
		domain, name = rule.Domain, rule.Label()
	}
	l.logger.Debug("decided", "domain", domain, "rule", name, "outcome", outcome.String(), "cost", cost, "descriptor", descriptor.String())
}
