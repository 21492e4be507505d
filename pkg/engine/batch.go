package engine

import (
	"slices"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Batch holds requests, the decisions about them, and the memory that both need. Use it again and again: in steady state
// deciding allocates nothing. The zero value is ready to use. A Batch is for one goroutine at a time and must not be copied.
type Batch struct {
	// Requests is what to decide, set by the caller. Decide does not change it.
	Requests []ratelimit.Request
	// Peek asks what would be, for all requests: every cost is 0, IDs are ignored, and the Recorder is not told.
	Peek bool
	// Timed asks for StoreBegan and StoreEnded: when the store was asked, and when it had answered. Both are 0 if it was not.
	Timed                  bool
	StoreBegan, StoreEnded time.Time
	// Early, if not nil, is called before the store waits for something: the Decisions that are Made need not wait for the
	// others. It may refuse: the others then end with ErrPostponed, and nothing is charged for them. Reset forgets it.
	Early func() (wait bool)
	// Decisions has one element per request after Decide. It is overwritten by the next Decide and gone after Reset.
	Decisions []Decision

	statuses []Status
	plans    []plan // one per status
	limits   []LimitResult
	hitOf    []int32 // for each of limits, its element of hits and results
	charges  []ratelimit.Charge
	spans    []span // for each of charges, its elements of hits and results
	hits     []ratelimit.Hit
	results  []ratelimit.Result
	keys     []byte
	early    early
}

type span struct{ first, end int32 }

// Decision is the answer to one request.
type Decision struct {
	// Made is true once the rest is there: always after Decide, and while Batch.Early runs for what does not wait.
	Made bool
	// Over is true if the request must not go on.
	Over bool
	// UnknownDomain is true if there are no rules for the request's domain (and it brought no fallback): it may go on.
	UnknownDomain bool
	// Degraded is true if the store could not decide at least one descriptor, which then followed its failure mode.
	Degraded bool
	// Shadowed is true if the request would be over, but for Options.ShadowMode.
	Shadowed bool
	// At is when a request with an ID was decided, see ratelimit.Charge.At. 0 if it has none.
	At int64
	// Err says why there is no decision: ErrNoDomain, ErrNoDescriptors, ErrPostponed, ratelimit.ErrConflict or
	// ratelimit.ErrCancelled. Over is false then, and the statuses mean nothing.
	Err error
	// StoreErr is the first error of a store that is not guarded by failure modes. The decision stands: such a descriptor is
	// let pass.
	StoreErr error
	// Statuses has exactly one element per descriptor, in the request's order.
	Statuses []Status
}

// Status is the answer for one descriptor.
type Status struct {
	Outcome ratelimit.Outcome
	// Over is true if the descriptor is over its limit and that is enforced. In quota mode the request may go on all the
	// same, see Decision.Over.
	Over bool
	// Override is true if the caller's own limit took the place of the rule's.
	Override bool
	// Degraded is the failure mode that gave this answer, FailureDefault if the store did.
	Degraded ratelimit.FailureMode
	// Cached is true if the counter was known to be over its limit, and the store was not asked.
	Cached bool
	// Rule is the rule that matched: nil if none did, or if another matched rule of the request replaces it.
	Rule *ratelimit.Rule
	// Limit is the tightest of Limits: one that denies before the others, of these the longest wait; else the least
	// remaining, and of equals the latest reset, then the rule's order. nil if nothing was counted: unmatched, unlimited, an
	// action, or a store that failed without a failure mode.
	Limit *ratelimit.Limit
	// Cost is what was asked for, after defaults and bounds.
	Cost int64
	// Granted is what was charged: Cost, or less where it did not fit.
	Granted int64
	// Remaining is what the tightest limit has left; 0 whenever Over.
	Remaining int64
	// RetryAfter is how long until all limits would allow this cost; 0 if they do.
	RetryAfter time.Duration
	// ResetAfter is how long until the tightest limit is as if never used.
	ResetAfter time.Duration
	// Limits has one element per limit that was counted, in the rule's order.
	Limits []LimitResult
}

// LimitResult is what the store said of one limit.
type LimitResult struct {
	Limit  *ratelimit.Limit
	Result ratelimit.Result
}

// keep bounds what a Batch holds on to between uses, in elements or bytes, so that one huge request does not stay in memory.
const (
	keepElements = 4 << 10
	keepBytes    = 1 << 20
)

// Reset forgets requests and decisions, so that nothing they point to is kept alive, and keeps the memory of usual sizes.
func (b *Batch) Reset() {
	b.Requests = emptied(b.Requests, keepElements)
	b.Decisions = emptied(b.Decisions, keepElements)
	b.Peek, b.Timed = false, false
	b.Early, b.early = nil, early{}
	b.statuses = emptied(b.statuses, keepElements)
	b.plans = emptied(b.plans, keepElements)
	b.limits = emptied(b.limits, keepElements)
	b.hitOf = emptied(b.hitOf, keepElements)
	b.charges = emptied(b.charges, keepElements)
	b.spans = emptied(b.spans, keepElements)
	b.hits = emptied(b.hits, keepElements)
	b.results = emptied(b.results, keepElements)
	b.keys = b.keys[:0]
	if cap(b.keys) > keepBytes {
		b.keys = nil
	}
}

// scratch empties what Decide fills.
func (b *Batch) scratch() {
	b.StoreBegan, b.StoreEnded = time.Time{}, time.Time{}
	b.statuses, b.plans = b.statuses[:0], b.plans[:0]
	b.limits, b.hitOf = b.limits[:0], b.hitOf[:0]
	b.charges, b.spans = b.charges[:0], b.spans[:0]
	b.hits, b.results = b.hits[:0], b.results[:0]
	b.keys = b.keys[:0]
}

// emptied clears what was used of s and returns it with length 0, or nil if it is larger than keep.
func emptied[T any](s []T, keep int) []T {
	if cap(s) > keep {
		return nil
	}
	clear(s)
	return s[:0]
}

// resized returns s with n zero elements.
func resized[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}
