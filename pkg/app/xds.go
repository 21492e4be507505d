package app

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/ruleset"
	"github.com/weirhq/weir/pkg/tlsfile"
	"github.com/weirhq/weir/pkg/xds"
)

// controlPlane is a control plane as a source of rules.
type controlPlane struct{ *xds.Client }

// Name implements ruleset.Source.
func (controlPlane) Name() string { return ruleset.XDSSource }

// Load implements ruleset.Source. A control plane may have nothing to say for long: the server starts without it.
func (controlPlane) Load(context.Context, *ruleset.Slot) {}

// Run implements ruleset.Source.
func (c controlPlane) Run(ctx context.Context, slot *ruleset.Slot) { c.Client.Run(ctx, slot) }

// followControlPlane adds the rules of a control plane, if there is one. It must come before the rule store.
func (a *app) followControlPlane(set *ruleset.Set, compile rules.Options) error {
	settings := &a.config.Rules.XDS
	if !settings.Enabled() {
		return nil
	}
	logger := a.logger.With("component", ruleset.XDSSource)
	options := xds.Options{
		Server: settings.Server, NodeID: settings.NodeID,
		NodeMetadata: pairs(settings.NodeMetadata), Headers: pairs(settings.Headers),
		ConnectRetry: settings.ConnectRetry,
		Backoff: xds.Backoff{
			Initial: settings.BackoffInitial, Max: settings.BackoffMax, Factor: settings.BackoffFactor, Jitter: settings.BackoffJitter,
		},
		MaxMessageBytes: settings.MaxMessageBytes,
		Rules:           compile,
		Observer:        a.metrics,
		Logger:          logger,
	}
	if settings.TLS.Enabled {
		var err error
		if options.TLS, err = tlsfile.NewClient(tlsfile.ClientOptions{
			CAFile: settings.TLS.CAFile, CertFile: settings.TLS.CertFile, KeyFile: settings.TLS.KeyFile, ServerName: settings.TLS.ServerName,
			CheckEvery: a.config.TLS.ReloadCheckEvery,
			Logger:     logger,
			OnLoad:     func(leaf *x509.Certificate) { a.metrics.CertificateLoaded(ruleset.XDSSource, leaf.NotAfter) },
		}); err != nil {
			return fmt.Errorf("rules.xds.tls: %w", err)
		}
	}
	a.controlPlane = xds.New(options)
	set.Add(controlPlane{a.controlPlane}, "rules of the control plane")
	return nil
}

// pairs reads a list of NAME=VALUE.
func pairs(list []string) map[string]string {
	values := make(map[string]string, len(list))
	for _, each := range list {
		name, value, _ := strings.Cut(each, "=")
		values[name] = value
	}
	return values
}
