// Package bench loads servers of Envoy's RateLimitService v3 and says what a decision costs them.
//
// Run takes one server or several in turns (A B A B ...), so that all of them see the same machine, and reports throughput,
// latencies and the processor time of the processes behind each server, per decision, with ratios paired by round. Every reply
// is checked: a server that is fast because it answers wrongly shows as faults.
//
// A closed loop has a number of callers, each of which sends its next call when the last one is answered; it finds the
// saturated cost. An open loop sends at a rate, whatever the server does, with gaps drawn from an exponential distribution
// (Poisson arrivals); its latencies count from the instant at which a call should have been sent, so that a server that
// stalls is charged for every call that it has kept waiting ("How NOT to Measure Latency", Gil Tene).
//
// Calls are written as raw HTTP/2 frames by a client that does no more than this needs: one goroutine per connection, no
// goroutine, timer or context per call. It speaks plain text alone.
package bench
