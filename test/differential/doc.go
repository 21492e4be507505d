// Package differential asks weir and envoyproxy/ratelimit the same questions, under the same rules and the same
// environment, and compares what both answer and count. What may differ stands in Differences, with its reason.
package differential
