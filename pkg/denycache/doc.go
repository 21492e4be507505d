// Package denycache answers for counters that are known to be empty, without asking the store that counts.
//
// A client that is over its limit often sends most of the traffic. When a store has denied a hit, it has also said when such
// a hit would be allowed if nobody else came. Others can only make that later, so until then the same hit is denied again,
// and the store need not be asked. The time counts from before the store was asked: it is never too long, and the hit that
// comes at the right instant finds what the store has.
//
// # What makes it exact
//
// Answered here is only what the store would answer, to the microsecond: a charge of one hit, without an ID, that has the
// limit and the cost of the one that was denied, and only for as long as nothing at all can be granted (or for a fixed
// window, until its end). Looks, groups and refunds always go to the store.
//
// Three things can make a counter ready earlier: a refund, a reset, and another limit. Limits are compared by their address,
// so new rules find nothing here. Refunds and resets through this process take effect at once, those through other processes
// when they are announced (Drop), which with Redis is a matter of a millisecond or so; until then a client may be denied
// although it could be allowed. No error is ever in the other direction. While announcements cannot be heard the cache is
// off (Listening). And no answer is older than Options.MaxAge, whatever happens: a counter that Redis has lost, or that was
// charged at the same time by another limit (an override, or a process with other rules), is found by then.
package denycache
