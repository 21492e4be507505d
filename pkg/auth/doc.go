// Package auth turns bearer tokens into a subject and a role: tokens that are listed in a file by their hash, and JSON Web
// Tokens of an OpenID Connect issuer.
//
// Tokens and hashes are never logged and never part of an error. Every error's text may be shown to a client.
//
// Sources: RFC 6750 (bearer tokens), RFC 7519 (JWT), RFC 7515 (JWS), RFC 7517 (JWK), RFC 8725 (JWT best practice), OpenID
// Connect Discovery 1.0.
package auth
