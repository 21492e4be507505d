// Package counters makes the store that counts, from one set of options: in memory, or in Redis behind what guards it and
// what answers ahead of it. Whoever decides requests opens its store here, so that all processes count alike.
//
// From the engine down, with Redis:
//
//	lease      hands out hits of busy counters that were taken ahead
//	denycache  answers for counters that are known to be over their limit
//	split      sends windows of one second to a Redis of their own, if there is one
//	failover   deadline, circuit breaker and failure mode, for each Redis by itself
//	redisstore
//
// What answers without asking stands before the guard, because it says nothing of Redis, and holds while Redis is away; its
// place is ahead.go. What changes how Redis is asked stands behind the guard, in guarded.go, so that its failures count.
package counters
