package ratelimit

import "sync/atomic"

// Entry is one key and value of a descriptor. Both are bytes that a client may control: they need not be UTF-8 and may
// have any length. Whoever shows one escapes it, whoever stores one bounds it.
type Entry struct{ Key, Value string }

// Descriptor is what one counter is chosen by: entries in order, from the most general to the most specific.
type Descriptor struct {
	Entries []Entry
	// Limit is an override sent by the caller. It replaces the rule's limits for this descriptor where the domain is known.
	Limit *Limit
	// Cost is this descriptor's own cost and counts only if HasCost is set; else the request's cost does.
	// 0 looks without charging, a negative cost gives back.
	Cost    int64
	HasCost bool
}

// Request asks whether an action described by its descriptors may go on.
//
// Its strings need to stay valid only until the decision about it has returned; nothing keeps them.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	// Cost is charged for each descriptor that has no cost of its own. 1 is an ordinary request, 0 looks without charging,
	// negative gives back. A transport whose protocol has a default sets it; here 0 means 0.
	Cost int64
	// ID, if not empty, makes the request idempotent: all requests with this ID and the same content are charged once. It
	// makes the request Atomic, too.
	ID string
	// Atomic asks for one all-or-nothing charge over everything that the request matches. Else each descriptor is charged
	// on its own, and a single limit whose remaining budget is smaller than the cost is emptied (see Hit.Partial).
	Atomic bool
	// Cancelled, if not nil, turns true when nobody waits for the decision any more: what was not sent to the store by then is
	// not charged. See Charge.Cancelled.
	Cancelled *atomic.Bool
	// Fallback is the limit of descriptors that neither a rule nor the domain's default covers. nil: such a descriptor is
	// allowed and carries no limit.
	Fallback *Limit
}
