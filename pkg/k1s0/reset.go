package k1s0

import (
	"context"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Reset sets the counters of one identifier back to never used: those of the rule that is for it, also if that is for many,
// and that of the default limit. window, if not 0, names one more of the default limit, made by checks over this window.
// It returns the identifier's name for people.
func (s *Service) Reset(ctx context.Context, caller Caller, scope, identifier string, window time.Duration) (string, error) {
	var f faults
	s.identified(&f, scope, identifier)
	f.window("window", window)
	if err := f.err(); err != nil {
		return "", err
	}
	further := []ratelimit.Limit{s.Default}
	if window != 0 {
		byDefault := s.Default
		byDefault.Window = window
		further = append(further, byDefault)
	}
	if err := s.Limiter.Reset(ctx, s.Domain, []ratelimit.Entry{{Key: scope, Value: identifier}}, further...); err != nil {
		return "", countersAway(err)
	}
	s.Logger.InfoContext(ctx, "counters reset", "scope", scope, "identifier", s.Hash(identifier),
		"subject", caller.Subject, "request_id", caller.RequestID)
	return shortened(scope) + ":" + shortened(identifier), nil
}
