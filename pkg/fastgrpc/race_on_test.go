//go:build race

package fastgrpc_test

// raceEnabled: the race detector makes pools forget at random, so allocations mean nothing.
const raceEnabled = true
