// Package failover keeps callers from waiting for a broken store. Store is an engine.Store that guards another one with a
// deadline on every call, a circuit breaker, and an answer of its own (a ratelimit.FailureMode) for each charge that the
// guarded store could not decide.
//
// # What counts as a failure
//
// A charge has failed if the guarded store left an error on it, or panicked. Each failed charge is answered by its failure
// mode; the other charges of the same call keep the store's answers. A call has failed, as the breaker counts it, only if
// the store decided none of its charges and Options.Blame blames it for one of them: a cluster that lost one of its nodes
// answers most charges, and the few that it cannot answer must not take the limits away from all others.
//
// Some errors are the caller's own. They pass through as they are, and tell the breaker nothing: those of ratelimit.CallersOwn,
// and whatever a call ends with after its caller has cancelled it. A call that its caller gave up, by cancelling or by a
// deadline, before the store had a tenth of Options.Timeout does not count either: else one impatient client could switch the
// store off for everyone. One that was given up later does count, because gateways give up long before a store that hangs has
// missed its own deadline.
//
// # The breaker
//
// It is closed at first. It opens after Options.Failures failed calls in a row, if no call has succeeded for as long as
// Options.Timeout: while a store answers some calls and not others, failures in a row come by chance. While it is open no
// caller reaches the store, and one goroutine asks every Options.ProbeInterval (plus up to half of it, at random, so that
// replicas do not ask in step) whether the store is back. The breaker is half-open during such a probe, and callers are
// still answered at once. The first probe that succeeds closes it. Until a call has succeeded after that, a single failed
// call opens it again.
package failover
