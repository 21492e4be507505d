// Package k1s0 is the API k1s0.system.ratelimit.v1: checks for services, rules and counters for operators, over gRPC and as
// REST.
//
// Both ends translate to the methods of Service, which validate, decide and store; what can go wrong has one Code, whose
// statuses stand in one table. Checks are open to everyone who reaches the server; every other call needs a role.
package k1s0
