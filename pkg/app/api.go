package app

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/k1s0"
	"github.com/weirhq/weir/pkg/respond"
	"github.com/weirhq/weir/pkg/ruleset"
	"github.com/weirhq/weir/pkg/rulestore"
)

// firstRead is how long a start waits for the rules of the rule store. A server that people rely on starts without them.
const firstRead = 10 * time.Second

// openRuleStore returns where rules made through the API are kept, nil if they cannot be made. It does not wait for a
// database; looked is told whether it answers.
func (a *app) openRuleStore(looked func(error)) (rulestore.Store, error) {
	settings := &a.config.Database
	options := rulestore.Options{Looked: looked, Logger: a.logger.With("component", "rule store")}
	var (
		store rulestore.Store
		err   error
	)
	switch {
	case settings.Enabled():
		postgres := rulestore.PostgresOptions{
			Options: options,
			Host:    settings.Host, Port: uint16(settings.Port), Name: settings.Name, User: settings.User, //nolint:gosec // bounded by its setting
			SSLMode: settings.SSLMode, SSLRootCert: settings.SSLRootCert, SSLCert: settings.SSLCert, SSLKey: settings.SSLKey,
			MaxOpenConns: settings.MaxOpenConns, MaxIdleConns: settings.MaxIdleConns, ConnMaxLifetime: settings.ConnMaxLifetime,
		}
		if !settings.Password.IsZero() {
			postgres.Password = settings.Password.Value
		}
		store, err = rulestore.OpenPostgres(postgres)
	case settings.Path != "":
		store, err = rulestore.OpenSQLite(rulestore.SQLiteOptions{Options: options, Path: settings.Path})
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	a.cleanup.add(func() { _ = store.Close() })
	return store, nil
}

// followRuleStore adds the rules of the rule store to those of files.
func (a *app) followRuleStore(ctx context.Context, set *ruleset.Set) (rulestore.Store, error) {
	store, err := a.openRuleStore(set.Looked)
	if err != nil {
		return nil, err
	}
	if store != nil {
		set.Follow(store)
	}
	bounded, cancel := context.WithTimeout(ctx, firstRead)
	defer cancel()
	set.Load(bounded)
	return store, nil
}

// newAPI makes the k1s0 API, and knows who may use it.
func (a *app) newAPI(limiter *engine.Limiter, set *ruleset.Set, store rulestore.Store) (*k1s0.Service, error) {
	who, err := a.authenticator()
	if err != nil {
		return nil, err
	}
	headers, err := respond.New(respond.Options{Styles: respond.XRateLimit | respond.IETF})
	if err != nil {
		return nil, err
	}
	byDefault := a.defaultLimit()
	if err := byDefault.Check(); err != nil {
		return nil, fmt.Errorf("ratelimit.default_limit: %w", err)
	}
	return k1s0.New(k1s0.Options{
		Limiter: limiter, Rules: set, Store: store, Auth: who, LocalOnly: a.config.Auth.Insecure,
		Domain: a.config.Rules.DefaultDomain, Default: byDefault, Headers: headers,
		Hash: a.identifiers.Show, Logger: a.logger.With("component", "api"),
		Panicked: func(value any, stack []byte) { a.panicked("api", value, stack) },
	}), nil
}

func (a *app) authenticator() (*auth.Authenticator, error) {
	settings, server := &a.config.Auth, &a.config.Server
	options := auth.Options{
		TokensFile: settings.TokensFile, Insecure: settings.Insecure, Logger: a.logger.With("component", "auth"),
		Listeners: []string{net.JoinHostPort(server.Host, strconv.Itoa(server.Port))},
	}
	if server.GRPCPort >= 0 {
		options.Listeners = append(options.Listeners, net.JoinHostPort(cmp.Or(server.GRPCHost, server.Host), strconv.Itoa(server.GRPCPort)))
	}
	if issuer := &settings.OIDC; issuer.Enabled() {
		options.OIDC = &auth.OIDC{
			Issuer: issuer.Issuer, Audience: issuer.Audience, JWKSURL: issuer.JWKSURL, RolesClaim: issuer.RolesClaim,
			CAFile: issuer.CAFile, Refresh: issuer.Refresh, Interval: issuer.Interval,
		}
	}
	who, err := auth.New(options)
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	a.cleanup.add(who.Close)
	return who, nil
}
