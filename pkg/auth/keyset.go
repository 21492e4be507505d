package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

const (
	maxKeys    = 100
	maxKeyID   = 256
	maxTried   = 4    // keys that a signature is tried with
	minRSABits = 2048 // RFC 7518, section 3.3
	maxRSABits = 8192 // larger keys take long to verify with
)

// algorithms are the signatures that are accepted. None of them works with a shared secret.
var algorithms = []string{"RS256", "ES256", "EdDSA"}

// keySet is an issuer's keys at one time. It is immutable.
type keySet struct {
	keys    []verificationKey
	fetched time.Time
}

type verificationKey struct {
	id, algorithm string
	key           jwt.VerificationKey
}

// find returns the keys with which a token of this key id and algorithm may be signed. A token without a key id may be
// signed with any; of two keys with one id, both count.
func (s *keySet) find(id, algorithm string) []jwt.VerificationKey {
	var found []jwt.VerificationKey
	for i := range s.keys {
		k := &s.keys[i]
		if k.algorithm == algorithm && (id == "" || k.id == id) && len(found) < maxTried {
			found = append(found, k.key)
		}
	}
	return found
}

// parseKeySet reads a JWK set (RFC 7517, section 5). Keys of other types, for other uses, and keys that are broken or too
// weak are left out, as section 5 asks; without any usable one it is an error.
func parseKeySet(text []byte, now time.Time) (*keySet, error) {
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("no JWK set: %w", err)
	}
	if len(document.Keys) > maxKeys {
		return nil, fmt.Errorf("the JWK set has %d keys: at most %d are read", len(document.Keys), maxKeys)
	}
	set := &keySet{fetched: now}
	for _, raw := range document.Keys {
		var jwk jose.JSONWebKey
		if err := jwk.UnmarshalJSON(raw); err != nil || jwk.Use != "" && jwk.Use != "sig" || len(jwk.KeyID) > maxKeyID {
			continue
		}
		algorithm := algorithmOf(jwk.Key)
		if algorithm == "" || jwk.Algorithm != "" && !sameAlgorithm(jwk.Algorithm, algorithm) {
			continue
		}
		set.keys = append(set.keys, verificationKey{jwk.KeyID, algorithm, jwk.Key})
	}
	if len(set.keys) == 0 {
		return nil, errors.New("the JWK set has no key for RS256, ES256 or EdDSA")
	}
	return set, nil
}

// algorithmOf returns the one algorithm that a public key is used with; empty for a key that is not.
func algorithmOf(key any) string {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= minRSABits && bits <= maxRSABits {
			return "RS256"
		}
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return "ES256"
		}
	case ed25519.PublicKey:
		return "EdDSA"
	}
	return ""
}

// sameAlgorithm compares a key's alg with the token's: RFC 9864 calls EdDSA with this curve Ed25519.
func sameAlgorithm(key, token string) bool {
	return key == token || key == "Ed25519" && token == "EdDSA"
}
