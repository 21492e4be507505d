package k1s0

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
	"github.com/weirhq/weir/pkg/ruleset"
	"github.com/weirhq/weir/pkg/rulestore"
)

// Options are what a Service works with.
type Options struct {
	Limiter *engine.Limiter
	Rules   *ruleset.Set
	// Store keeps the rules that are made here. nil: none can be made.
	Store rulestore.Store
	Auth  Authorizer
	// LocalOnly refuses REST requests that need a role and call this machine by a name other than localhost. It is for a
	// server without authentication, which a web page could reach by a name that leads to 127.0.0.1.
	LocalOnly bool
	// Domain is the one of checks by scope and of stored rules. Defaults to rulestore.DefaultDomain.
	Domain string
	// Default limits what no rule covers. It must have passed ratelimit.Limit.Check.
	Default ratelimit.Limit
	// Headers writes the response headers of REST checks. nil: Retry-After alone.
	Headers *respond.Formatter
	// Hash shows an identifier in a log. nil: not at all.
	Hash func(identifier string) string
	// Logger is told of changes and of failures. nil: nobody is.
	Logger *slog.Logger
	// Panicked is told of a panic, which is one REST request that failed. nil: nobody is.
	Panicked func(value any, stack []byte)
	// Now is the time of day of what is told. nil: time.Now.
	Now func() time.Time
}

// Authorizer knows who sent a bearer token and what that one may do. *auth.Authenticator is one.
type Authorizer interface {
	Authorize(ctx context.Context, bearer string, required auth.Role) (auth.Principal, error)
}

// Service answers the API's calls. It checks no roles: its transports do. It is safe for concurrent use.
//
// Every error that its methods return is an *Error.
type Service struct{ Options }

// New returns a Service.
func New(options Options) *Service {
	if options.Domain == "" {
		options.Domain = rulestore.DefaultDomain
	}
	if options.Headers == nil {
		options.Headers = &respond.Formatter{}
	}
	if options.Hash == nil {
		options.Hash = func(string) string { return "-" }
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Panicked == nil {
		options.Panicked = func(any, []byte) {}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Service{options}
}

// Caller is who asks, as logs and the audit table keep it.
type Caller struct {
	Subject   string
	RequestID string
}

func (c Caller) actor() rulestore.Actor {
	return rulestore.Actor{Subject: c.Subject, RequestID: c.RequestID}
}
