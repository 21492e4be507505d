// Package respond says what an HTTP client is told about a decision: header fields, the status, and a body for a denial.
// REST, Envoy's response_headers_to_add and Kong all use it, so a client sees the same whichever way its request came.
//
// Names may come from a caller, and values from a store that is wrong; still nothing that this package writes into a
// header holds a byte outside visible ASCII and space, and every value is bounded in length.
//
// Sources: draft-ietf-httpapi-ratelimit-headers-11 (RateLimit, RateLimit-Policy, problem types), RFC 9651 (structured
// fields), draft-polli-ratelimit-headers-03 (RateLimit-Limit and its siblings), RFC 9110 (Retry-After, Accept),
// RFC 6585 (429), RFC 9457 (problem details).
package respond
