package auth

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"
)

// MaxToken bounds a bearer token's length in bytes. Tokens with long lists of groups stay well below.
const MaxToken = 16 << 10

// FromRequest returns the bearer token of an HTTP request, empty if it has no Authorization header. The error wraps
// ErrUnauthenticated: the header is there more than once, or is no bearer token.
func FromRequest(r *http.Request) (string, error) {
	return fromHeader(r.Header.Values("Authorization"))
}

// FromContext returns the bearer token of an incoming gRPC call's metadata, by the rules of FromRequest.
func FromContext(ctx context.Context) (string, error) {
	return fromHeader(metadata.ValueFromIncomingContext(ctx, "authorization"))
}

func fromHeader(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", fmt.Errorf("%w: there are %d Authorization headers: send one", ErrUnauthenticated, len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", fmt.Errorf("%w: the Authorization header is no bearer token: write Bearer and the token", ErrUnauthenticated)
	}
	token = strings.Trim(token, " ")
	if len(token) > MaxToken {
		return "", fmt.Errorf("%w: the bearer token has %d bytes: at most %d are read", ErrUnauthenticated, len(token), MaxToken)
	}
	if !isToken68(token) {
		return "", fmt.Errorf("%w: the bearer token is empty or has characters that no token has", ErrUnauthenticated)
	}
	return token, nil
}

// isToken68 reports whether s is a token68 of RFC 9110, section 11.2.
func isToken68(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := range len(s) {
		c := s[i]
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return s != ""
}
