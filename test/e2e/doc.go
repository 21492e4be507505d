// Package e2e tests weir as its users run it: the real binary, beside a real Envoy, with a real Redis. What the tests
// measure is logged in lines that begin with "figure:"; `make figures` shows them without the race detector.
package e2e
