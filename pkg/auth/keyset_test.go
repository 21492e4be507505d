package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/weirhq/weir/pkg/auth/authtest"
)

func jsonOf(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestParseKeySet(t *testing.T) {
	ec := authtest.NewKey(t, "ec", jwt.SigningMethodES256).JWK()
	ed := authtest.NewKey(t, "ed", jwt.SigningMethodEdDSA).JWK()
	rs := authtest.NewKey(t, "rs", jwt.SigningMethodRS256).JWK()
	change := func(key jose.JSONWebKey, with func(*jose.JSONWebKey)) jose.JSONWebKey {
		with(&key)
		return key
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{
		jsonOf(t, ec), jsonOf(t, rs),
		jsonOf(t, change(ed, func(k *jose.JSONWebKey) { k.Algorithm = "Ed25519" })),
		jsonOf(t, change(ec, func(k *jose.JSONWebKey) { k.KeyID, k.Algorithm, k.Use = "bare", "", "" })),
		// What must be left out:
		jsonOf(t, change(ec, func(k *jose.JSONWebKey) { k.KeyID, k.Use = "encryption", "enc" })),
		jsonOf(t, change(rs, func(k *jose.JSONWebKey) { k.KeyID, k.Algorithm = "pss", "PS256" })),
		jsonOf(t, change(rs, func(k *jose.JSONWebKey) { k.KeyID, k.Algorithm = "rs512", "RS512" })),
		jsonOf(t, jose.JSONWebKey{KeyID: "small", Key: small.Public()}),
		jsonOf(t, jose.JSONWebKey{KeyID: "p384", Key: p384.Public()}),
		jsonOf(t, jose.JSONWebKey{KeyID: "secret", Key: []byte("0123456789abcdef0123456789abcdef")}),
		jsonOf(t, jose.JSONWebKey{KeyID: "private", Key: small}),
		jsonOf(t, change(ec, func(k *jose.JSONWebKey) { k.KeyID = strings.Repeat("k", maxKeyID+1) })),
		`{"kid": "future", "kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"}`,
		`{"kid": "broken", "kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"}`,
		`null`, `7`, `"text"`, `{}`,
	}
	now := time.Now()
	set, err := parseKeySet([]byte(`{"keys": [`+strings.Join(keys, ",")+`], "more": 1}`), now)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, key := range set.keys {
		got = append(got, key.id+"/"+key.algorithm)
	}
	if want := "ec/ES256 rs/RS256 ed/EdDSA bare/ES256"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, " "), want)
	}
	if !set.fetched.Equal(now) {
		t.Errorf("fetched %v", set.fetched)
	}
	for _, text := range []string{``, `null`, `[]`, `{}`, `{"keys": []}`, `{"keys": {}}`, `{"keys": [{}]}`, `<html>`, `{"keys": [` + strings.Repeat("{},", maxKeys) + `{}]}`} {
		if set, err := parseKeySet([]byte(text), now); err == nil {
			t.Errorf("%.30s gives %d keys", text, len(set.keys))
		}
	}
}

func FuzzParseKeySet(f *testing.F) {
	key := authtest.NewKey(f, "a", jwt.SigningMethodES256).JWK()
	f.Add([]byte(`{"keys": [` + jsonOf(f, key) + `]}`))
	f.Add([]byte(`{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}, {"kty": "OKP", "crv": "Ed25519", "x": ""}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := parseKeySet(text, time.Time{})
		if (set == nil) == (err == nil) {
			t.Fatalf("%v and %v", set, err)
		}
		if err == nil {
			for _, key := range set.keys {
				if key.algorithm == "" || algorithmOf(key.key) != key.algorithm {
					t.Errorf("a key for %q", key.algorithm)
				}
			}
		}
	})
}
