// Package authtest is a small OpenID Connect issuer for tests: it serves discovery and keys on a loopback address, signs
// tokens, rotates its keys and fails on demand.
package authtest
