// Package telemetry is what weir shows of itself: Prometheus metrics and log lines.
//
// Nothing that a client sends can make either grow without bounds. Labels are names of rules and domains; run-time values
// become labels only where a rule asks for it, up to a cap. The series of a rule that is no longer in force are dropped.
// Values that identify clients are logged as keyed hashes, and a line that repeats itself is logged now and then only.
package telemetry
