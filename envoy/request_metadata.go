package envoy

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// appendRequestMetadata appends dynamic_metadata as envoyproxy/ratelimit sends it with RESPONSE_DYNAMIC_METADATA:
//
//	domain               of the request
//	descriptors          of the request, each with entries ("key=value"), and its own hitsAddend and limit if it has them
//	hitsAddend           of the request; absent if it is 1
//	quotaModeEnabled     whether a rule that matched is in quota mode
//	quotaModeViolations  the indexes of descriptors that are over a limit in quota mode; absent if none is
//
// Beside appendMetadata's the fields of both are merged, as protobuf merges messages.
func appendRequestMetadata(dst []byte, request *ratelimit.Request, decision *engine.Decision) []byte {
	dst, start := begin(dst, responseMetadata)
	dst, field := beginField(dst, "descriptors")
	dst, list := begin(dst, valueList)
	for i := range request.Descriptors {
		dst = appendRequestDescriptor(dst, &request.Descriptors[i])
	}
	dst = endField(end(dst, list), field)
	dst = appendField(dst, "domain", request.Domain, 0)
	if request.Cost != 1 {
		dst = appendField(dst, "hitsAddend", request.Cost, 0)
	}
	enabled, violations := quotas(decision)
	dst = appendField(dst, "quotaModeEnabled", enabled, 0)
	if len(violations) > 0 {
		dst = appendField(dst, "quotaModeViolations", violations, 0)
	}
	return end(dst, start)
}

func appendRequestDescriptor(dst []byte, descriptor *ratelimit.Descriptor) []byte {
	dst, element := begin(dst, listValues)
	dst, fields := begin(dst, valueStruct)
	dst, field := beginField(dst, "entries")
	dst, list := begin(dst, valueList)
	for _, entry := range descriptor.Entries {
		var inner int
		dst, inner = begin(dst, listValues)
		dst = end(appendString(dst, entry.Key+"="+entry.Value), inner)
	}
	dst = endField(end(dst, list), field)
	if descriptor.HasCost {
		dst = appendField(dst, "hitsAddend", descriptor.Cost, 0)
	}
	if limit := descriptor.Limit; limit != nil {
		dst = appendField(dst, "limit", overrideText(limit), 0)
	}
	return end(end(dst, fields), element)
}

// overrideText writes a limit as Go prints its message, where fields that are 0 do not show.
func overrideText(limit *ratelimit.Limit) string {
	number, _ := unitOf(limit)
	unit := "unit:" + unitNames[number]
	if limit.Count == 0 {
		return unit
	}
	return fmt.Sprintf("requests_per_unit:%d %s", limit.Count, unit)
}

// unitNames are envoy.type.v3.RateLimitUnit's.
var unitNames = [...]string{"UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"}

// beginField begins an entry of a Struct's map whose value is appended until endField.
func beginField(dst []byte, key string) (out []byte, starts [2]int) {
	dst, starts[0] = begin(dst, structFields)
	dst = appendText(dst, fieldKey, strings.ToValidUTF8(key, "\uFFFD"))
	dst, starts[1] = begin(dst, fieldValue)
	return dst, starts
}

func endField(dst []byte, starts [2]int) []byte { return end(end(dst, starts[1]), starts[0]) }

// quotas tells which descriptors are over in quota mode: those whose rule says so, and all that are over although the request is
// not.
func quotas(decision *engine.Decision) (enabled bool, violations []any) {
	for i := range decision.Statuses {
		status := &decision.Statuses[i]
		inQuota := status.Rule != nil && status.Rule.QuotaMode && !status.Override && !status.Rule.Unlimited
		enabled = enabled || inQuota
		if status.Over && (inQuota || !decision.Over) {
			violations = append(violations, i)
		}
	}
	return enabled, violations
}
