//go:build race

package memstore

// raceEnabled tells that sync.Pool forgets at random, as it does under the race detector.
const raceEnabled = true
