package k1s0

import (
	"strings"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// What a check is answered while the counters cannot be reached. Clients know these words.
const (
	reasonFailOpen   = "redis unavailable, fail-open"
	reasonFailClosed = "redis unavailable, fail-closed"
)

// reasonFor says why a descriptor is over.
func reasonFor(status *engine.Status, subject string) string {
	switch {
	case status.Outcome == ratelimit.OutcomeFailedClosed:
		return reasonFailClosed
	case status.Rule != nil && status.Rule.Action == ratelimit.ActionDeny:
		return "denied by a rule for " + subject
	default:
		return "rate limit exceeded for " + subject
	}
}

// subjectOf is how people call what a descriptor is about: "user:user-001", or "edge plan=free|user=ann" where it is not a
// scope and an identifier.
func (s *Service) subjectOf(request *ratelimit.Request, i int) string {
	entries := request.Descriptors[i].Entries
	if request.Domain == s.Domain && len(entries) == 1 {
		return shortened(entries[0].Key) + ":" + shortened(entries[0].Value)
	}
	parts := make([]string, 0, len(entries))
	for _, entry := range entries {
		parts = append(parts, shortened(entry.Key)+"="+shortened(entry.Value))
	}
	return shortened(request.Domain) + " " + strings.Join(parts, "|")
}
