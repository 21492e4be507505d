//go:build !race

package servers

// raceEnabled tells whether the tests run with the race detector.
const raceEnabled = false
