// Package sharedkeys runs weir and envoyproxy/ratelimit on one Redis, as they are while a rollout lasts, and checks that both
// count in the same keys, and together never let through more than a limit.
package sharedkeys
