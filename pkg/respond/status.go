package respond

import (
	"net/http"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Status is the HTTP status for d: 200 if it is not a denial; quota (0: 402) if the limit that binds most is a quota; 503
// for ReducedCapacity, since the client is not over anything; else 429.
func (d *Decision) Status(quota int) int {
	switch {
	case !d.Denied:
		return http.StatusOK
	case d.Cause == ReducedCapacity:
		return http.StatusServiceUnavailable
	case d.Cause == Refused:
		return http.StatusTooManyRequests
	}
	if i := d.Tightest(); i < 0 || d.Limits[i].Kind != ratelimit.Quota {
		return http.StatusTooManyRequests
	}
	if quota == 0 {
		return http.StatusPaymentRequired
	}
	return quota
}
