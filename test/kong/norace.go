//go:build !race

package kong

// RaceEnabled tells whether the tests and the plugin run with the race detector, which multiplies the memory that they take.
const RaceEnabled = false
