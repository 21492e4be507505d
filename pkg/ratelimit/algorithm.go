package ratelimit

import (
	"fmt"
	"strings"
)

// Algorithm names the way in which a limit counts.
//
// If you add one, also write pkg/algo/NAME.go, its branch in pkg/redisstore/scripts, pkg/storetest/testdata/NAME.txt and
// the README's row; a test that loops over Algorithms fails until all of them are there.
type Algorithm uint8

// The algorithms. The zero value is invalid, so that a forgotten field is noticed.
const (
	// FixedWindow counts in windows that start at multiples of the window since the Unix epoch (or on the calendar).
	// Never more than Count in any one of these windows.
	FixedWindow Algorithm = iota + 1
	// SlidingWindow weighs the previous fixed window's count by its share of the last Window and adds the current one's.
	// The weighted sum never exceeds Count. Two integers a key, whatever the count.
	SlidingWindow
	// SlidingLog remembers when each hit came. Never more than Count in any interval of length Window.
	SlidingLog
	// TokenBucket refills Count tokens per Window up to Burst (default Count). Never more than Burst + Count*d/Window in any
	// interval of length d.
	TokenBucket
	// LeakyBucket drains Count hits per Window from a queue of length Burst (default 1): hits are evenly spaced, and only
	// Burst of them may come at once. Never more than Burst + Count*d/Window in any interval of length d.
	LeakyBucket
)

var algorithmNames = [...]string{
	FixedWindow:   "fixed_window",
	SlidingWindow: "sliding_window",
	SlidingLog:    "sliding_log",
	TokenBucket:   "token_bucket",
	LeakyBucket:   "leaky_bucket",
}

// Algorithms returns every algorithm, in the order of their constants.
func Algorithms() []Algorithm {
	return []Algorithm{FixedWindow, SlidingWindow, SlidingLog, TokenBucket, LeakyBucket}
}

// String returns the name as it is written in rule files, or "algorithm(N)" for a value that is none.
func (a Algorithm) String() string {
	if a == 0 || int(a) >= len(algorithmNames) {
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return algorithmNames[a]
}

// ParseAlgorithm reads a name as written in rule files. The error lists the known names.
func ParseAlgorithm(name string) (Algorithm, error) {
	for _, a := range Algorithms() {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q: write one of %s", name, strings.Join(algorithmNames[1:], ", "))
}
