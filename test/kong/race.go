//go:build race

package kong

// raceEnabled tells whether the tests run with the race detector.
const raceEnabled = true
