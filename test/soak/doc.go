// Package soak holds a long test of two replicas of weir, one Redis and a real Envoy under steady load, while rules are
// reloaded and a replica is restarted again and again. It is built with the tag soak only: `make soak` runs it.
package soak
