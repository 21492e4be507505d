package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options say whom an Authenticator knows. The zero value knows nobody: what needs a role is refused.
type Options struct {
	// TokensFile lists static tokens by their hash; empty: none. It is read again when it changes.
	TokensFile string
	// OIDC accepts an issuer's tokens; nil: none.
	OIDC *OIDC
	// Insecure makes everybody an administrator. It is refused beside TokensFile or OIDC, and unless every one of Listeners
	// can be reached from this machine only.
	Insecure  bool
	Listeners []string // addresses as IsLoopback takes them
	// Logger is told of files that are not taken over and keys that cannot be fetched. nil: nobody is.
	Logger *slog.Logger
	// Now is the clock. nil: time.Now.
	Now func() time.Time
}

// Authenticator tells who sent a request. It is safe for concurrent use.
type Authenticator struct {
	insecure bool
	tokens   *tokenFile // nil: none
	oidc     *oidc      // nil: none
}

// New reads the token file. It does not ask the issuer for anything, so that weir starts while the issuer is down. The
// error wraps ErrOptions. Close must be called in the end.
func New(options Options) (*Authenticator, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if err := checkInsecure(options); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	a := &Authenticator{insecure: options.Insecure}
	var err error
	if options.TokensFile != "" {
		if a.tokens, err = openTokenFile(options.TokensFile, options.Now, options.Logger); err != nil {
			return nil, fmt.Errorf("%w: tokens: %w", ErrOptions, err)
		}
	}
	if options.OIDC != nil {
		if a.oidc, err = newOIDC(*options.OIDC, options.Now, options.Logger); err != nil {
			return nil, fmt.Errorf("%w: OIDC: %w", ErrOptions, err)
		}
	}
	return a, nil
}

func checkInsecure(options Options) error {
	if !options.Insecure {
		return nil
	}
	if options.TokensFile != "" || options.OIDC != nil {
		return errors.New("insecure is set beside tokens or OIDC: choose one")
	}
	if len(options.Listeners) == 0 {
		return errors.New("insecure is set, but not what listens: it is for loopback addresses alone")
	}
	for _, address := range options.Listeners {
		if !IsLoopback(address) {
			return fmt.Errorf("insecure is set, but %q can be reached from other machines: listen on 127.0.0.1, or configure tokens or OIDC", address)
		}
	}
	return nil
}

// Close ends a fetch of keys that is running.
func (a *Authenticator) Close() {
	if a.oidc != nil {
		a.oidc.keys.close()
	}
}

// Authenticate returns whose bearer token it is. It may wait for the issuer's keys, but not longer than ctx and 5 seconds.
// The error wraps ErrUnauthenticated (ErrNoToken for an empty token) or ErrUnavailable.
func (a *Authenticator) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	switch {
	case a.insecure:
		return Principal{Subject: string(ViaInsecure), Role: Admin, Via: ViaInsecure}, nil
	case a.tokens == nil && a.oidc == nil:
		return Principal{}, fmt.Errorf("%w: no authentication is configured, so nobody is known: configure tokens or OIDC", ErrUnauthenticated)
	case bearer == "":
		return Principal{}, ErrNoToken
	case len(bearer) > MaxToken:
		return Principal{}, fmt.Errorf("%w: the bearer token has %d bytes: at most %d are read", ErrUnauthenticated, len(bearer), MaxToken)
	}
	if a.tokens != nil {
		if who, ok := a.tokens.find(ctx, bearer); ok {
			return who, nil
		}
	}
	if a.oidc != nil && strings.Count(bearer, ".") == 2 {
		return a.oidc.authenticate(ctx, bearer)
	}
	return Principal{}, fmt.Errorf("%w: the token is not known, or has expired", ErrUnauthenticated)
}

// Authorize authenticates and then checks the role. Its error wraps one of Authenticate's, or ErrForbidden, with which the
// principal is still returned, for the log.
func (a *Authenticator) Authorize(ctx context.Context, bearer string, required Role) (Principal, error) {
	who, err := a.Authenticate(ctx, bearer)
	if err != nil {
		return Principal{}, err
	}
	if !who.Role.Allows(required) {
		return who, fmt.Errorf("%w: this needs the role %s", ErrForbidden, required)
	}
	return who, nil
}
