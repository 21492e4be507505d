// Package redisstore keeps counters in Redis: one server, a primary watched by Sentinel, or a Cluster. All processes that
// use the same Redis share their counters.
//
// One script decides a whole call (scripts/*.lua). It runs alone in Redis, so that however many callers there are, never
// more than a limit is admitted. A call is one round trip; in a Cluster one for each node, at the same time.
//
// Calls that come while a round trip is under way go together in the next one (lane), and what is the same in them is counted
// together (request), with the results that they would have had one after the other. So the costs of a round trip are shared
// by more callers the more there are, and one who comes alone does not wait for others.
//
// A request that Redis may have executed is never sent again, for it would be charged twice: a connection that breaks
// before the answer is an error of the charges that were on it. Sent again are only requests that Redis refused without
// executing them: the script was not loaded, the slot has moved, the server has become a replica.
package redisstore
