package authtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// Audience is what Claims puts into aud.
const Audience = "weir"

// Issuer is safe for concurrent use.
type Issuer struct {
	// URL is the issuer's name, its claim iss, and where its discovery document is.
	URL string
	// Now is the clock for Claims; time.Now unless a test sets it before use.
	Now func() time.Time

	mu        sync.Mutex
	keys      []Key
	made      int
	fetches   int
	document  []byte       // served as the key set instead of the keys
	intercept http.Handler // answers instead of everything
}

// Key is one of the issuer's key pairs.
type Key struct {
	ID      string
	Method  jwt.SigningMethod
	Private crypto.Signer
}

// New starts an issuer with one ES256 key. It ends with the test.
func New(tb testing.TB) *Issuer {
	tb.Helper()
	issuer := &Issuer{Now: time.Now}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", issuer.discovery)
	mux.HandleFunc("GET /keys", issuer.keySet)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := issuer.interceptor(); h != nil {
			h.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	issuer.URL = server.URL
	issuer.Rotate(tb, jwt.SigningMethodES256)
	return issuer
}

// JWKSURL is where the keys are.
func (i *Issuer) JWKSURL() string { return i.URL + "/keys" }

// rsaKey is made once, because that takes long.
var rsaKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// NewKey makes a key pair for RS256, ES256 or EdDSA that no issuer has. All keys for RS256 are the same one.
func NewKey(tb testing.TB, id string, method jwt.SigningMethod) Key {
	tb.Helper()
	key := Key{ID: id, Method: method}
	var err error
	switch method {
	case jwt.SigningMethodRS256:
		key.Private, err = rsaKey()
	case jwt.SigningMethodES256:
		key.Private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jwt.SigningMethodEdDSA:
		_, key.Private, err = ed25519.GenerateKey(rand.Reader)
	default:
		tb.Fatalf("no key pair for %s", method.Alg())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// Rotate replaces all keys by a new one and returns it.
func (i *Issuer) Rotate(tb testing.TB, method jwt.SigningMethod) Key {
	tb.Helper()
	i.mu.Lock()
	i.made++
	id := "key-" + strconv.Itoa(i.made)
	i.mu.Unlock()
	key := NewKey(tb, id, method)
	i.SetKeys(key)
	return key
}

// SetKeys replaces all keys. The first one signs.
func (i *Issuer) SetKeys(keys ...Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys, i.document = keys, nil
}

// SetKeySet makes the issuer serve this text in place of its keys, until the next SetKeys.
func (i *Issuer) SetKeySet(text []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.document = text
}

// Intercept makes h answer all requests; nil ends that.
func (i *Issuer) Intercept(h http.Handler) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.intercept = h
}

// Fetches is how often the keys were asked for.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// Claims are those of a good token for an hour, with roles in realm_access.roles. Tests change what they are about.
func (i *Issuer) Claims(subject string, roles ...string) jwt.MapClaims {
	now := i.Now()
	return jwt.MapClaims{
		"iss": i.URL, "aud": Audience, "sub": subject, "realm_access": map[string]any{"roles": roles},
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

// Token is a good token, signed with the first key.
func (i *Issuer) Token(tb testing.TB, subject string, roles ...string) string {
	tb.Helper()
	return i.Sign(tb, i.Claims(subject, roles...), nil)
}

// Sign signs any claims with the first key. header is added to that of the token; a nil value removes a field.
func (i *Issuer) Sign(tb testing.TB, claims jwt.MapClaims, header map[string]any) string {
	tb.Helper()
	i.mu.Lock()
	key := i.keys[0]
	i.mu.Unlock()
	return key.Sign(tb, claims, header)
}

// Sign signs any claims with this key. header is added to that of the token; a nil value removes a field.
func (k Key) Sign(tb testing.TB, claims jwt.MapClaims, header map[string]any) string {
	tb.Helper()
	token := jwt.NewWithClaims(k.Method, claims)
	token.Header["kid"] = k.ID
	maps.Copy(token.Header, header)
	maps.DeleteFunc(token.Header, func(_ string, value any) bool { return value == nil })
	text, err := token.SignedString(k.Private)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// JWK is the key's public half as a key set has it.
func (k Key) JWK() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.Private.Public(), KeyID: k.ID, Algorithm: k.Method.Alg(), Use: "sig"}
}

func (i *Issuer) interceptor() http.Handler {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.intercept
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]string{"issuer": i.URL, "jwks_uri": i.JWKSURL()})
}

func (i *Issuer) keySet(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	i.fetches++
	document, set := i.document, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, key := range i.keys {
		set.Keys = append(set.Keys, key.JWK())
	}
	i.mu.Unlock()
	if document != nil {
		_, _ = w.Write(document)
		return
	}
	writeJSON(w, set)
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
