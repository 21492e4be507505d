// Package rollingswap tests that replicas of envoyproxy/ratelimit and of weir in its place count together: behind one real Envoy, on one Redis,
// replaced one by one in both directions under load.
package rollingswap
