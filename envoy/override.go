package envoy

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// override is a RateLimitOverride while its message is read: a repeated field merges into it.
type override struct {
	requestsPerUnit, multiplier uint32
	unit                        int32
}

func (o *override) decode(message []byte) error {
	for len(message) > 0 {
		field, kind, n, err := consumeTag(message)
		if err != nil {
			return err
		}
		message = message[n:]
		switch {
		case field <= overrideUnit && kind == protowire.VarintType:
			value, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			if field == overrideRequestsPerUnit {
				o.requestsPerUnit = uint32(value)
			} else {
				o.unit = int32(value)
			}
			message = message[n:]
		case field == overrideUnitMultiplier && kind == protowire.BytesType:
			value, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			multiplier := uint64(o.multiplier)
			if err := decodeWrapper(value, &multiplier); err != nil {
				return err
			}
			o.multiplier = uint32(multiplier)
			message = message[n:]
		default:
			if message, err = skip(message, field, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// limit returns the fixed window that is asked for, unchecked. What is no window (an unknown unit, one that is too long)
// becomes a limit that does not pass Limit.Check, which the engine ignores. A multiplier of 0 counts as absent, which is 1.
func (o *override) limit() ratelimit.Limit {
	limit := ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: int64(o.requestsPerUnit)}
	multiplier, unit := int64(max(1, o.multiplier)), int64(unitLength(o.unit))
	if unit != 0 && multiplier <= int64(ratelimit.MaxWindow)/unit {
		limit.Window = time.Duration(multiplier * unit)
	}
	return limit
}
