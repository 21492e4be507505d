// Package client is what Go programs need to live with rate limits.
//
//   - Client speaks the k1s0 API of a weir server: checks, rules, usage, resets.
//   - Guard limits a service that has no gateway before it: net/http middleware and gRPC interceptors that ask a Checker, which
//     is a Client or, in the same process, an Embedded engine.
//   - Transport is an http.RoundTripper for the other side: it heeds what servers say about their limits.
//
// Sources: draft-ietf-httpapi-ratelimit-headers-11 and its predecessors, RFC 9110 (Retry-After), RFC 7239 (Forwarded),
// RFC 9457 (problem details), google.rpc's error details.
package client
