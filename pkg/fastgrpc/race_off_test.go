//go:build !race

package fastgrpc_test

const raceEnabled = false
