// Package algo is the arithmetic of every way to count: what a counter remembers, what a hit does to it, and what the
// client is told. It has no clock, no lock and no I/O; the in-memory store runs on it, and the Redis scripts are checked
// against it step by step (package storetest).
//
// Three rules hold for all algorithms:
//
//   - What was used stays used. A counter remembers hits, not what is left, so a limit that changed applies to the
//     counter that is there: 5 used of 10 are 5 used of 20, and fill a limit of 3.
//   - Only a charge leaves a trace. A look, a denied hit, and a hit that gives back to a counter on which nothing is used
//     change nothing.
//   - Time does not go back. A charge writes its time into the counter, and a later call with an earlier time is decided
//     as if it came at the counter's.
//
// Times and durations are microseconds, times since the Unix epoch. All numbers stay below 2^53, so that a Lua number
// holds them exactly.
package algo
