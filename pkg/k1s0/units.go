package k1s0

import (
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// milliseconds rounds up, so that who waits this long has waited long enough.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// seconds rounds up.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// actionName is an action as rule files spell it.
func actionName(action ratelimit.Action) string {
	switch action {
	case ratelimit.ActionAllow:
		return "allow"
	case ratelimit.ActionDeny:
		return "deny"
	case ratelimit.ActionLimit:
	}
	return "limit"
}

// calendarName is empty for a window of fixed length.
func calendarName(limit *ratelimit.Limit) string {
	if limit.Calendar == ratelimit.CalendarNone {
		return ""
	}
	return limit.WindowName()
}
