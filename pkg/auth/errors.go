package auth

import (
	"errors"
	"fmt"
)

// The errors of this package. Every error that Authenticate and Authorize return wraps one of them.
var (
	// ErrUnauthenticated: nobody knows who sent the request. HTTP 401, gRPC UNAUTHENTICATED.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrNoToken is an ErrUnauthenticated: there was no token at all.
	ErrNoToken = fmt.Errorf("%w: send an Authorization header with a bearer token", ErrUnauthenticated)
	// ErrForbidden: the principal is known, but its role does not allow this. HTTP 403, gRPC PERMISSION_DENIED.
	ErrForbidden = errors.New("forbidden")
	// ErrUnavailable: a token cannot be checked because the issuer's keys were never fetched. HTTP 503, gRPC UNAVAILABLE.
	ErrUnavailable = errors.New("tokens cannot be verified at the moment")
	// ErrOptions is wrapped by every error of New.
	ErrOptions = errors.New("invalid auth settings")
)

// Challenge returns the value of WWW-Authenticate for a 401 or 403 that err leads to (RFC 6750, section 3).
func Challenge(err error) string {
	switch {
	case errors.Is(err, ErrForbidden):
		return `Bearer realm="weir", error="insufficient_scope"`
	case errors.Is(err, ErrNoToken):
		return `Bearer realm="weir"`
	default:
		return `Bearer realm="weir", error="invalid_token"`
	}
}
