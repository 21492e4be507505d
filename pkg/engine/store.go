package engine

import (
	"context"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Store holds counters. All implementations pass storetest.Run.
//
// Take decides each charge and fills its Results, Degraded and Err in place. It MUST return by ctx's deadline, and MUST
// NOT admit more than a limit allows, whatever the concurrency. One charge's failure is that charge's Err; the others are
// not touched by it. It calls Waiting before it waits for more than a lock; what is Cancelled while it waits should not be
// charged. Charges of one call that share a key are decided in their order. Keys, slices and flags are the caller's memory:
// nothing of them is read or written after Take has returned. Every Limit has passed Limit.Check.
//
// Reset makes each key as if it had never been used. Keys that do not exist are no error. On an error some keys may have
// been reset.
//
// Both are safe for concurrent use.
type Store interface {
	Take(ctx context.Context, charges []ratelimit.Charge)
	Reset(ctx context.Context, keys []string) error
}
