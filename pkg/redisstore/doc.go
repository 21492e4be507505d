// Package redisstore keeps counters in Redis: one server, a primary watched by Sentinel, or a Cluster. All processes that
// use the same Redis share their counters.
//
// One script decides a whole call (scripts/*.lua). It runs alone in Redis, so that however many callers there are, never
// more than a limit is admitted. A call is one round trip; in a Cluster one for each node, at the same time.
//
// A request that Redis may have executed is never sent again, for it would be charged twice: a connection that breaks
// before the answer is an error of the charges that were on it. Sent again are only requests that Redis refused without
// executing them: the script was not loaded, the slot has moved, the server has become a replica.
package redisstore
