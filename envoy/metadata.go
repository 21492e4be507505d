package envoy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// The fields of google.protobuf.Struct, Value and ListValue.
const (
	structFields = 1
	fieldKey     = 1
	fieldValue   = 2

	valueNull   = 1
	valueNumber = 2
	valueString = 3
	valueBool   = 4
	valueStruct = 5
	valueList   = 6

	listValues = 1
)

// maxMetadataDepth bounds the nesting of a rule's metadata in a reply; what is deeper becomes null. Envoy's parser stops at 100.
const maxMetadataDepth = 32

// appendMetadata appends dynamic_metadata, which Envoy keeps under envoy.filters.http.ratelimit:
//
//	rule       the rule of the tightest status, as people call it; absent if no rule matched
//	outcome    of that status: allowed, denied, shadow_denied, ...
//	remaining  of that status; absent if nothing was counted
//	degraded   whether the store could not decide
//	metadata   the metadata of all matched rules, merged: maps key by key, else the first descriptor's value stays
func appendMetadata(dst []byte, decision *engine.Decision) []byte {
	dst, start := begin(dst, responseMetadata)
	dst = appendField(dst, "degraded", decision.Degraded, 0)
	if merged := mergedMetadata(decision.Statuses); len(merged) > 0 {
		dst = appendField(dst, "metadata", merged, 0)
	}
	if status := tightest(decision.Statuses); status != nil {
		dst = appendField(dst, "outcome", status.Outcome.String(), 0)
		if status.Limit != nil {
			dst = appendField(dst, "remaining", status.Remaining, 0)
		}
		if status.Rule != nil {
			dst = appendField(dst, "rule", respond.EscapeName(status.Rule.Label()), 0)
		}
	}
	return end(dst, start)
}

// tightest returns the status that says most: one that is over before the others, then a counted one, then the one with
// less remaining; nil if no rule matched and nothing was counted.
func tightest(statuses []engine.Status) *engine.Status {
	var best *engine.Status
	for i := range statuses {
		status := &statuses[i]
		if status.Rule == nil && status.Limit == nil {
			continue
		}
		if best == nil || says(status) > says(best) || says(status) == says(best) && status.Remaining < best.Remaining {
			best = status
		}
	}
	return best
}

func says(status *engine.Status) int {
	switch {
	case status.Over:
		return 2
	case status.Limit != nil:
		return 1
	default:
		return 0
	}
}

// mergedMetadata returns nil if no rule has any. With a single one the rule's own map is returned, which is only read.
func mergedMetadata(statuses []engine.Status) map[string]any {
	var (
		merged map[string]any
		from   *ratelimit.Rule
		own    bool
	)
	for i := range statuses {
		rule := statuses[i].Rule
		if rule == nil || len(rule.Metadata) == 0 || rule == from {
			continue
		}
		if merged == nil {
			merged, from = rule.Metadata, rule
			continue
		}
		if !own {
			merged, own = maps.Clone(merged), true
		}
		merge(merged, rule.Metadata, 0)
	}
	return merged
}

// merge adds src to dst, which is the caller's own; maps inside it are copied before they are changed.
func merge(dst, src map[string]any, depth int) {
	for key, value := range src {
		existing, ok := dst[key]
		if !ok {
			dst[key] = value
			continue
		}
		into, intoMap := existing.(map[string]any)
		from, fromMap := value.(map[string]any)
		if intoMap && fromMap && depth < maxMetadataDepth {
			into = maps.Clone(into)
			merge(into, from, depth+1)
			dst[key] = into
		}
	}
}

// appendField appends one entry of a Struct's map.
func appendField(dst []byte, key string, value any, depth int) []byte {
	dst, start := begin(dst, structFields)
	dst = appendText(dst, fieldKey, strings.ToValidUTF8(key, "\uFFFD"))
	dst, inner := begin(dst, fieldValue)
	dst = appendValue(dst, value, depth)
	dst = end(dst, inner)
	return end(dst, start)
}

// appendValue appends the content of a Value. It knows what YAML and JSON decode to; anything else is written as text.
func appendValue(dst []byte, value any, depth int) []byte {
	if depth > maxMetadataDepth {
		value = nil
	}
	switch v := value.(type) {
	case nil:
		return append(protowire.AppendTag(dst, valueNull, protowire.VarintType), 0)
	case bool:
		bit := protowire.EncodeBool(v)
		return protowire.AppendVarint(protowire.AppendTag(dst, valueBool, protowire.VarintType), bit)
	case int:
		return appendNumber(dst, float64(v))
	case int64:
		return appendNumber(dst, float64(v))
	case uint64:
		return appendNumber(dst, float64(v))
	case float64:
		return appendNumber(dst, v)
	case string:
		return appendString(dst, v)
	case map[string]any:
		dst, start := begin(dst, valueStruct)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			dst = appendField(dst, key, v[key], depth+1)
		}
		return end(dst, start)
	case []any:
		dst, start := begin(dst, valueList)
		for i := range v {
			var inner int
			dst, inner = begin(dst, listValues)
			dst = appendValue(dst, v[i], depth+1)
			dst = end(dst, inner)
		}
		return end(dst, start)
	default:
		return appendString(dst, fmt.Sprint(v))
	}
}

func appendNumber(dst []byte, v float64) []byte {
	dst = protowire.AppendTag(dst, valueNumber, protowire.Fixed64Type)
	return protowire.AppendFixed64(dst, math.Float64bits(v))
}

// appendString writes the empty string, too: a Value without any field is no value.
func appendString(dst []byte, v string) []byte {
	v = strings.ToValidUTF8(v, "\uFFFD")
	dst = protowire.AppendTag(dst, valueString, protowire.BytesType)
	return append(protowire.AppendVarint(dst, uint64(len(v))), v...)
}
