package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// skew is how far the issuer's clock may be from ours.
const skew = 60 * time.Second

const (
	defaultRefresh  = 10 * time.Minute
	defaultInterval = 10 * time.Second
)

// OIDC says which tokens of an OpenID Connect issuer are accepted: those signed with RS256, ES256 or EdDSA by one of its
// keys, that name the issuer and the audience, have a subject and an expiry, and are valid now give or take 60 seconds.
type OIDC struct {
	// Issuer is the claim iss, exactly as the issuer writes it.
	Issuer string
	// Audience lists what the claim aud may be; one of them must be in it.
	Audience []string
	// JWKSURL is where the keys are. Empty: what Issuer's /.well-known/openid-configuration says.
	JWKSURL string
	// RolesClaim is where the roles are: names joined by dots or a JSON pointer. Empty: DefaultRolesClaim.
	RolesClaim string
	// CAFile has the certificates, as PEM, that the issuer's must come from. Empty: the system's. Read at every fetch.
	CAFile string
	// Refresh is after how long the keys are fetched again, which is also how long a key that the issuer withdrew is still
	// accepted. 0: 10 minutes.
	Refresh time.Duration
	// Interval is the least time between two fetches, whatever asks for them. 0: 10 seconds.
	Interval time.Duration
}

type oidc struct {
	parser *jwt.Parser
	keys   *keySource
	roles  claimPath
}

func newOIDC(o OIDC, now func() time.Time, log *slog.Logger) (*oidc, error) {
	if o.RolesClaim == "" {
		o.RolesClaim = DefaultRolesClaim
	}
	if o.Refresh == 0 {
		o.Refresh = defaultRefresh
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	roles, err := parseClaimPath(o.RolesClaim)
	if err != nil {
		return nil, err
	}
	if err := checkURL(o.Issuer); err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	if o.JWKSURL != "" {
		if err := checkURL(o.JWKSURL); err != nil {
			return nil, fmt.Errorf("JWKS URL: %w", err)
		}
	}
	if len(o.Audience) == 0 {
		return nil, errors.New("no audience: without one a token for any other service would be accepted")
	}
	if slices.Contains(o.Audience, "") {
		return nil, errors.New("an audience is empty: remove it or name it")
	}
	if o.Refresh < 0 || o.Interval < 0 {
		return nil, fmt.Errorf("refresh %v or interval %v is negative", o.Refresh, o.Interval)
	}
	fetch := &keyFetch{o.Issuer, o.JWKSURL, o.CAFile, now}
	if _, err := fetch.client(); err != nil {
		return nil, fmt.Errorf("CA file: %w", err)
	}
	return &oidc{
		parser: jwt.NewParser(
			jwt.WithValidMethods(algorithms), jwt.WithIssuer(o.Issuer), jwt.WithAudience(o.Audience...), jwt.WithExpirationRequired(),
			jwt.WithIssuedAt(), jwt.WithLeeway(skew), jwt.WithTimeFunc(now), jwt.WithStrictDecoding(),
		),
		keys:  newKeySource(fetch.keys, o.Refresh, o.Interval, now, log),
		roles: roles,
	}, nil
}

// authenticate verifies a JSON Web Token.
func (o *oidc) authenticate(ctx context.Context, token string) (Principal, error) {
	// A map, and not a struct, because names of claims are case-sensitive and encoding/json's fields are not.
	claims := jwt.MapClaims{}
	_, err := o.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("an extension is critical that is not known here") // RFC 7515, section 4.1.11
		}
		id, isText := t.Header["kid"].(string)
		if _, present := t.Header["kid"]; present && (!isText || id == "" || len(id) > maxKeyID) {
			return nil, errors.New("the key id is not usable")
		}
		keys, err := o.keys.keys(ctx, id, t.Method.Alg())
		return jwt.VerificationKeySet{Keys: keys}, err
	})
	if err != nil {
		return Principal{}, refusal(err)
	}
	subject, _ := claims["sub"].(string)
	if !validSubject(subject) {
		return Principal{}, fmt.Errorf("%w: the token has no usable subject", ErrUnauthenticated)
	}
	return Principal{subject, o.roles.role(claims), ViaOIDC}, nil
}

// refusals are what a client is told; the first that fits.
var refusals = []struct {
	err  error
	text string
}{
	{jwt.ErrTokenMalformed, "the token is no JSON Web Token"},
	{jwt.ErrTokenSignatureInvalid, "the token's signature is not valid, or not RS256, ES256 or EdDSA"},
	{jwt.ErrTokenRequiredClaimMissing, "the token lacks a claim: exp, iss and aud are required"},
	{jwt.ErrTokenInvalidIssuer, "the token is from another issuer"},
	{jwt.ErrTokenInvalidAudience, "the token is for another audience"},
	{jwt.ErrTokenExpired, "the token has expired"},
	{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
	{jwt.ErrTokenUsedBeforeIssued, "the token is not valid yet"},
}

// refusal returns the error for a token that does not verify. It passes on only texts of this package.
func refusal(err error) error {
	switch {
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: the issuer's keys cannot be fetched", ErrUnavailable)
	case errors.Is(err, ErrUnauthenticated):
		return fmt.Errorf("%w: the token is signed with a key that the issuer does not have", ErrUnauthenticated)
	}
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return fmt.Errorf("%w: %s", ErrUnauthenticated, known.text)
		}
	}
	return fmt.Errorf("%w: the token cannot be verified", ErrUnauthenticated)
}
