package auth_test

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/auth/authtest"
)

// oidcOnly returns an authenticator for an issuer; change may adapt its settings.
func oidcOnly(t *testing.T, issuer *authtest.Issuer, change func(*auth.Options)) *auth.Authenticator {
	t.Helper()
	options := auth.Options{OIDC: &auth.OIDC{Issuer: issuer.URL, Audience: []string{authtest.Audience}, Interval: time.Nanosecond}}
	if change != nil {
		change(&options)
	}
	a, err := auth.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func wantRefused(t *testing.T, a *auth.Authenticator, token, reason string) {
	t.Helper()
	who, err := a.Authenticate(t.Context(), token)
	if !errors.Is(err, auth.ErrUnauthenticated) || !strings.Contains(err.Error(), reason) || who != (auth.Principal{}) {
		t.Errorf("got %+v (%v), want an error about %q", who, err, reason)
	}
	if err != nil && token != "" && strings.Contains(err.Error(), token) {
		t.Errorf("the error shows the token: %v", err)
	}
}

func wantAccepted(t *testing.T, a *auth.Authenticator, token string, want auth.Role) {
	t.Helper()
	who, err := a.Authenticate(t.Context(), token)
	if want := (auth.Principal{Subject: "alice", Role: want, Via: auth.ViaOIDC}); err != nil || who != want {
		t.Errorf("got %+v (%v), want %+v", who, err, want)
	}
}

func TestAlgorithms(t *testing.T) {
	for _, method := range []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodES256, jwt.SigningMethodEdDSA} {
		t.Run(method.Alg(), func(t *testing.T) {
			issuer := authtest.New(t)
			issuer.Rotate(t, method)
			wantAccepted(t, oidcOnly(t, issuer, nil), issuer.Token(t, "alice", "sys_operator"), auth.Operator)
		})
	}
}

func TestJWKSURLWithoutDiscovery(t *testing.T) {
	issuer := authtest.New(t)
	a := oidcOnly(t, issuer, func(o *auth.Options) { o.OIDC.Issuer, o.OIDC.JWKSURL = "https://issuer.example", issuer.JWKSURL() })
	claims := issuer.Claims("alice", "sys_admin")
	wantRefused(t, a, issuer.Sign(t, claims, nil), "another issuer")
	claims["iss"] = "https://issuer.example"
	wantAccepted(t, a, issuer.Sign(t, claims, nil), auth.Admin)
}

func TestClaims(t *testing.T) {
	issuer := authtest.New(t)
	now := time.Now()
	issuer.Now = func() time.Time { return now }
	a := oidcOnly(t, issuer, func(o *auth.Options) {
		o.Now = issuer.Now
		o.OIDC.Audience = []string{"other", authtest.Audience}
		o.OIDC.RolesClaim = "/https:~1~1weir.example~1roles"
	})
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	tests := []struct {
		name   string
		change jwt.MapClaims // nil values are removed
		reason string        // empty: accepted
	}{
		{"good", jwt.MapClaims{}, ""},
		{"one of several audiences", jwt.MapClaims{"aud": []string{"x", authtest.Audience}}, ""},
		{"the other audience", jwt.MapClaims{"aud": "other"}, ""},
		{"expired within the skew", jwt.MapClaims{"exp": at(-59 * time.Second)}, ""},
		{"begins within the skew", jwt.MapClaims{"nbf": at(59 * time.Second), "iat": at(59 * time.Second)}, ""},
		{"no iat and nbf", jwt.MapClaims{"iat": nil, "nbf": nil}, ""},
		{"expired", jwt.MapClaims{"exp": at(-61 * time.Second)}, "expired"},
		{"not yet valid", jwt.MapClaims{"nbf": at(62 * time.Second)}, "not valid yet"},
		{"issued in the future", jwt.MapClaims{"iat": at(62 * time.Second)}, "not valid yet"},
		{"wrong issuer", jwt.MapClaims{"iss": "https://evil.example"}, "another issuer"},
		{"issuer with a slash more", jwt.MapClaims{"iss": issuer.URL + "/"}, "another issuer"},
		{"wrong audience", jwt.MapClaims{"aud": "weir2"}, "another audience"},
		{"wrong audiences", jwt.MapClaims{"aud": []string{"a", "b"}}, "another audience"},
		{"no audience", jwt.MapClaims{"aud": nil}, "unauthenticated"},
		{"empty audience", jwt.MapClaims{"aud": []string{}}, "unauthenticated"},
		{"no expiry", jwt.MapClaims{"exp": nil}, "lacks a claim"},
		{"no issuer", jwt.MapClaims{"iss": nil}, "unauthenticated"},
		{"no subject", jwt.MapClaims{"sub": nil}, "no usable subject"},
		{"empty subject", jwt.MapClaims{"sub": ""}, "no usable subject"},
		{"long subject", jwt.MapClaims{"sub": strings.Repeat("a", 257)}, "no usable subject"},
		{"subject with a line break", jwt.MapClaims{"sub": "alice\nlevel=ERROR"}, "no usable subject"},
		{"subject that is a number", jwt.MapClaims{"sub": 7}, "no usable subject"},
		{"expiry that is text", jwt.MapClaims{"exp": "tomorrow"}, "unauthenticated"},
		{"expiry in another case", jwt.MapClaims{"exp": nil, "EXP": at(time.Hour)}, "lacks a claim"},
		{"not before that is an object", jwt.MapClaims{"nbf": map[string]any{}}, "unauthenticated"},
		{"issuer that is a list", jwt.MapClaims{"iss": []string{issuer.URL}}, "unauthenticated"},
		{"audience that is a number", jwt.MapClaims{"aud": 1}, "unauthenticated"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claims := issuer.Claims("alice")
			claims["https://weir.example/roles"] = []string{"sys_auditor"}
			maps.Copy(claims, tt.change)
			maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
			token := issuer.Sign(t, claims, nil)
			if tt.reason == "" {
				wantAccepted(t, a, token, auth.Auditor)
			} else {
				wantRefused(t, a, token, tt.reason)
			}
		})
	}
}

// TestForgeries: tokens that the issuer never signed.
func TestForgeries(t *testing.T) {
	issuer := authtest.New(t)
	signing := issuer.Rotate(t, jwt.SigningMethodRS256)
	a := oidcOnly(t, issuer, nil)
	claims := issuer.Claims("alice", "sys_admin")
	good := issuer.Sign(t, claims, nil)
	wantAccepted(t, a, good, auth.Admin)
	parts := strings.Split(good, ".")

	der, err := x509.MarshalPKIXPublicKey(signing.Private.Public())
	if err != nil {
		t.Fatal(err)
	}
	jwk, err := json.Marshal(signing.JWK())
	if err != nil {
		t.Fatal(err)
	}
	hmac := func(method jwt.SigningMethod, secret []byte) string {
		token := jwt.NewWithClaims(method, claims)
		token.Header["kid"] = signing.ID
		text, err := token.SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	none := func(alg string) string {
		header := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":%q,"kid":%q}`, alg, signing.ID))
		return header + "." + parts[1] + "."
	}
	signed := func(method jwt.SigningMethod, key crypto.PrivateKey) string {
		token := jwt.NewWithClaims(method, claims)
		token.Header["kid"] = signing.ID
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	stranger := authtest.NewKey(t, signing.ID, jwt.SigningMethodES256)
	tests := map[string]string{
		"none":                         none("none"),
		"None":                         none("None"),
		"NONE with a signature":        none("NONE") + parts[2],
		"no signature":                 parts[0] + "." + parts[1] + ".",
		"HMAC with the public key PEM": hmac(jwt.SigningMethodHS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		"HMAC with the public key DER": hmac(jwt.SigningMethodHS512, der),
		"HMAC with the JWK":            hmac(jwt.SigningMethodHS384, jwk),
		"RS512 with the right key":     signed(jwt.SigningMethodRS512, signing.Private),
		"PS256 with the right key":     signed(jwt.SigningMethodPS256, signing.Private),
		"another key, same id":         stranger.Sign(t, claims, nil),
		"another key in the header":    stranger.Sign(t, claims, map[string]any{"kid": "mine", "jwk": stranger.JWK()}),
		"another key's address":        stranger.Sign(t, claims, map[string]any{"kid": "mine", "jku": "https://evil.example/keys"}),
		"another key, no id":           stranger.Sign(t, claims, map[string]any{"kid": nil}),
		"critical extension":           issuer.Sign(t, claims, map[string]any{"crit": []string{"b64"}, "b64": false}),
		"empty list of extensions":     issuer.Sign(t, claims, map[string]any{"crit": []string{}}),
		"key id that is a number":      issuer.Sign(t, claims, map[string]any{"kid": 1}),
		"empty key id":                 issuer.Sign(t, claims, map[string]any{"kid": ""}),
		"long key id":                  issuer.Sign(t, claims, map[string]any{"kid": strings.Repeat("k", 257)}),
		"claims of another token":      parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"mallory"}`)) + "." + parts[2],
		"signature cut":                good[:len(good)-4],
		"padding":                      good + "==",
		"four parts":                   good + ".x",
		"two parts":                    parts[0] + "." + parts[1],
		"empty parts":                  "..",
		"no base64":                    "!.!.!",
		"no JSON":                      "YQ.YQ.YQ",
		"null":                         "bnVsbA.bnVsbA.AAAA",
		"huge":                         good + strings.Repeat("A", auth.MaxToken),
	}
	for name, token := range tests {
		t.Run(name, func(t *testing.T) { wantRefused(t, a, token, "unauthenticated") })
	}
	wantAccepted(t, a, good, auth.Admin)
}

func TestDuplicateClaims(t *testing.T) {
	issuer := authtest.New(t)
	key := issuer.Rotate(t, jwt.SigningMethodEdDSA)
	a := oidcOnly(t, issuer, nil)
	sign := func(header, claims string) string {
		text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
		signature, err := jwt.SigningMethodEdDSA.Sign(text, key.Private)
		if err != nil {
			t.Fatal(err)
		}
		return text + "." + base64.RawURLEncoding.EncodeToString(signature)
	}
	body := func(subject string) string {
		return fmt.Sprintf(`{"iss":%q,"aud":"weir","exp":%d,"sub":"mallory",%s"realm_access":{"roles":[]}}`, issuer.URL, time.Now().Unix()+60, subject)
	}
	header := fmt.Sprintf(`{"alg":"EdDSA","kid":%q}`, key.ID)
	// The last of several members counts (RFC 7519, section 4), for the signature's algorithm too.
	wantAccepted(t, a, sign(header, body(`"sub":"alice",`)), auth.NoRole)
	wantRefused(t, a, sign(fmt.Sprintf(`{"alg":"EdDSA","kid":%q,"alg":"none"}`, key.ID), body(`"sub":"alice",`)), "signature")
}

func TestKeysWithOneID(t *testing.T) {
	issuer := authtest.New(t)
	first, second := authtest.NewKey(t, "same", jwt.SigningMethodES256), authtest.NewKey(t, "same", jwt.SigningMethodES256)
	issuer.SetKeys(first, second, authtest.NewKey(t, "same", jwt.SigningMethodEdDSA))
	a := oidcOnly(t, issuer, nil)
	for _, key := range []authtest.Key{first, second} {
		wantAccepted(t, a, key.Sign(t, issuer.Claims("alice"), nil), auth.NoRole)
		wantAccepted(t, a, key.Sign(t, issuer.Claims("alice"), map[string]any{"kid": nil}), auth.NoRole)
	}
}

func TestRotatingKeys(t *testing.T) {
	issuer := authtest.New(t)
	a := oidcOnly(t, issuer, nil)
	old := issuer.Token(t, "alice")
	wantAccepted(t, a, old, auth.NoRole)
	for _, method := range []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodEdDSA, jwt.SigningMethodES256} {
		issuer.Rotate(t, method)
		token := issuer.Token(t, "alice", "sys_auditor")
		wantAccepted(t, a, token, auth.Auditor)
		wantAccepted(t, a, token, auth.Auditor)
	}
	wantRefused(t, a, old, "does not have")
	if got := issuer.Fetches(); got != 5 {
		t.Errorf("%d fetches, want one for each new key id and one for the old one", got)
	}
}

func TestFloodOfTokens(t *testing.T) {
	issuer := authtest.New(t)
	a := oidcOnly(t, issuer, func(o *auth.Options) { o.OIDC.Interval = time.Hour })
	good := issuer.Token(t, "alice")
	wantAccepted(t, a, good, auth.NoRole)
	stranger := authtest.NewKey(t, "", jwt.SigningMethodEdDSA)
	var wait sync.WaitGroup
	for caller := range 8 {
		wait.Go(func() {
			for i := range 50 {
				token := stranger.Sign(t, issuer.Claims("mallory"), map[string]any{"kid": fmt.Sprint(caller, "-", i)})
				wantRefused(t, a, token, "does not have")
			}
		})
	}
	wait.Wait()
	if got := issuer.Fetches(); got != 1 {
		t.Errorf("%d fetches", got)
	}
	wantAccepted(t, a, good, auth.NoRole)
}

// TestBadIssuer: whatever the issuer answers, the keys that were known stay, and the log tells why.
func TestBadIssuer(t *testing.T) {
	text := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	tests := map[string]struct {
		handler http.Handler
		reason  string
	}{
		"error":          {text(500, "boom"), "500 Internal Server Error"},
		"no JSON":        {text(200, "<html>"), "invalid character"},
		"no keys":        {text(200, `{}`), "speaks for the issuer"},
		"endless":        {text(200, strings.Repeat(" ", 2<<20)), "more than 1048576 bytes"},
		"another issuer": {text(200, `{"issuer": "https://evil.example", "jwks_uri": "https://evil.example/"}`), "speaks for the issuer"},
		"redirect without end": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}), "too many redirects"},
		"redirect without TLS": {http.RedirectHandler("http://192.0.2.1/", http.StatusFound), "must begin with https"},
		"cut": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		}), "unexpected EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var logs syncBuffer
			issuer := authtest.New(t)
			a := oidcOnly(t, issuer, func(o *auth.Options) { o.Logger = slog.New(slog.NewTextHandler(&logs, nil)) })
			good := issuer.Token(t, "alice")
			issuer.Intercept(tt.handler)
			if _, err := a.Authenticate(t.Context(), good); !errors.Is(err, auth.ErrUnavailable) {
				t.Errorf("without keys: %v", err)
			}
			if got := logs.String(); !strings.Contains(got, tt.reason) {
				t.Errorf("log: %s\nwant: %s", got, tt.reason)
			}
			issuer.Intercept(nil)
			wantAccepted(t, a, good, auth.NoRole)
			issuer.Intercept(tt.handler)
			wantRefused(t, a, authtest.NewKey(t, "new", jwt.SigningMethodEdDSA).Sign(t, issuer.Claims("alice"), nil), "does not have")
			wantAccepted(t, a, good, auth.NoRole)
			if strings.Contains(logs.String(), good) {
				t.Error("the log shows a token")
			}
		})
	}
}

func TestDiscoveryRefusesKeysWithoutTLS(t *testing.T) {
	issuer := authtest.New(t)
	var logs syncBuffer
	a := oidcOnly(t, issuer, func(o *auth.Options) { o.Logger = slog.New(slog.NewTextHandler(&logs, nil)) })
	issuer.Intercept(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": "http://192.0.2.1/keys"}`, issuer.URL)
	}))
	if _, err := a.Authenticate(t.Context(), issuer.Token(t, "alice")); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if got := logs.String(); !strings.Contains(got, "must begin with https") {
		t.Errorf("log: %s", got)
	}
}

// TestEmptyKeySetKeepsTheOld: an issuer that loses its keys for a moment locks nobody out.
func TestEmptyKeySetKeepsTheOld(t *testing.T) {
	issuer := authtest.New(t)
	a := oidcOnly(t, issuer, func(o *auth.Options) { o.OIDC.Refresh = time.Nanosecond })
	good := issuer.Token(t, "alice")
	wantAccepted(t, a, good, auth.NoRole)
	issuer.SetKeySet([]byte(`{"keys": []}`))
	for range 5 {
		wantAccepted(t, a, good, auth.NoRole)
	}
}

func TestTLS(t *testing.T) {
	key := authtest.NewKey(t, "a", jwt.SigningMethodES256)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.JWK()}})
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	claims := jwt.MapClaims{"iss": server.URL, "aud": "weir", "sub": "alice", "exp": time.Now().Unix() + 60}
	settings := auth.OIDC{Issuer: server.URL, Audience: []string{"weir"}, JWKSURL: server.URL}
	trusting, err := auth.New(auth.Options{OIDC: &auth.OIDC{Issuer: settings.Issuer, Audience: settings.Audience, JWKSURL: settings.JWKSURL, CAFile: ca}})
	if err != nil {
		t.Fatal(err)
	}
	defer trusting.Close()
	wantAccepted(t, trusting, key.Sign(t, claims, nil), auth.NoRole)

	strict, err := auth.New(auth.Options{OIDC: &settings})
	if err != nil {
		t.Fatal(err)
	}
	defer strict.Close()
	if _, err := strict.Authenticate(t.Context(), key.Sign(t, claims, nil)); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("a certificate that nobody knows: %v", err)
	}
}

// syncBuffer is a buffer that a fetch may log to while a test reads it.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
