package auth

import (
	"unicode"
	"unicode/utf8"
)

// Principal is who sent a request.
type Principal struct {
	// Subject names the principal in the audit log: as the token file or the token's claim sub has it. Printable, not empty,
	// at most MaxSubject bytes.
	Subject string
	Role    Role
	Via     Via
}

// Via is how a principal is known.
type Via string

// The ways.
const (
	ViaToken    Via = "token"    // listed in the token file
	ViaOIDC     Via = "oidc"     // a JSON Web Token of the issuer
	ViaInsecure Via = "insecure" // anybody, on a loopback listener
)

// MaxSubject bounds a subject's length in bytes.
const MaxSubject = 256

// validSubject reports whether a subject can stand in logs and tables as it is.
func validSubject(subject string) bool {
	if subject == "" || len(subject) > MaxSubject || !utf8.ValidString(subject) {
		return false
	}
	for _, r := range subject {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
