// Package gateway proves weir inside a real Envoy Gateway: its control plane, the Envoy that it starts, and Redis, as a cluster would have
// them, without a cluster. It is built with the tag gateway only: `make e2e-gateway` runs it.
//
// Everything runs in namespaces of its own, where fixed ports and names such as envoy-gateway are free to be used and nothing
// is left behind. RATELIMIT_BIN names another rate limit service, for example envoyproxy/ratelimit itself.
package gateway
