package engine

import "github.com/weirhq/weir/pkg/ratelimit"

// Recorder is told about every decision, for metrics. It must be safe for concurrent use, must not block, and must not keep
// what it is given: entries and domain are the caller's memory, statuses and decisions are used again.
type Recorder interface {
	// Decided is called once for each descriptor of a known domain. status.Rule is nil if nothing matched, or if a fallback
	// limit applied; then status.Override tells whether the caller's own limit did.
	Decided(domain string, entries []ratelimit.Entry, status *Status)
	// UnknownDomain is called once for each request whose domain no rule is for, with the number of its descriptors. Decided
	// is not called for them.
	UnknownDomain(domain string, descriptors int)
	// Answered is called once for each request of a known domain, after Decided for each of its descriptors.
	Answered(decision *Decision)
}

type silent struct{}

func (silent) Decided(string, []ratelimit.Entry, *Status) {}
func (silent) UnknownDomain(string, int)                  {}
func (silent) Answered(*Decision)                         {}
