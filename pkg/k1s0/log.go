package k1s0

import (
	"context"
	"log/slog"
)

// log notes a request that failed: by us at level error, for want of a role at level warn, else at level debug.
func (s *Service) log(ctx context.Context, failed *Error, caller Caller, where ...slog.Attr) {
	level := slog.LevelDebug
	switch {
	case failed.ours():
		level = slog.LevelError
	case failed.Code == CodeUnauthenticated, failed.Code == CodeForbidden:
		level = slog.LevelWarn
	}
	if !s.Logger.Enabled(ctx, level) {
		return
	}
	attrs := append(where, slog.String("code", string(failed.Code)), slog.String("request_id", caller.RequestID))
	if caller.Subject != "" {
		attrs = append(attrs, slog.String("subject", caller.Subject))
	}
	if failed.cause != nil {
		attrs = append(attrs, slog.Any("error", failed.cause))
	} else {
		attrs = append(attrs, slog.String("error", failed.Message))
	}
	s.Logger.LogAttrs(ctx, level, "a request to the API failed", attrs...)
}
