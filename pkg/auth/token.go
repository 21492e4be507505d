package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	tokenPrefix = "weir_" // lets scanners find leaked tokens
	hashPrefix  = "sha256:"
	tokenBytes  = 32
	// minToken keeps out passwords, which an unsalted hash would not protect. 20 characters of base64 are 120 bits.
	minToken = 20
)

// NewToken makes a token with 256 random bits, and the hash under which a token file lists it.
func NewToken() (token, hash string) {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process rather than return weak bytes
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	return token, hashOf(token)
}

// HashToken returns the hash under which a token file lists a token that was made elsewhere. The token must be random,
// since the hash has no salt; one that is too short to be, too long, or could not be sent as a bearer token is an error.
func HashToken(token string) (string, error) {
	switch {
	case len(token) < minToken:
		return "", fmt.Errorf("the token has %d characters: use at least %d random ones, or let weir make one", len(token), minToken)
	case len(token) > MaxToken:
		return "", fmt.Errorf("the token has %d characters: use at most %d", len(token), MaxToken)
	case !isToken68(token):
		return "", fmt.Errorf("the token has characters that a bearer token cannot have: use letters, digits and -._~+/")
	}
	return hashOf(token), nil
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// parseHash reads what hashOf writes.
func parseHash(text string) (sum [sha256.Size]byte, ok bool) {
	digits, found := strings.CutPrefix(text, hashPrefix)
	if !found || len(digits) != hex.EncodedLen(len(sum)) {
		return sum, false
	}
	_, err := hex.Decode(sum[:], []byte(digits))
	return sum, err == nil
}
