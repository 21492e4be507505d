package envoy

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// The fields of the messages, as envoy/service/ratelimit/v3/rls.proto and envoy/extensions/common/ratelimit/v3/ratelimit.proto
// number them.
const (
	requestDomain      = 1
	requestDescriptors = 2
	requestHitsAddend  = 3

	descriptorEntries    = 1
	descriptorLimit      = 2
	descriptorHitsAddend = 3
	descriptorNegative   = 4

	entryKey   = 1
	entryValue = 2

	overrideRequestsPerUnit = 1
	overrideUnit            = 2
	overrideUnitMultiplier  = 3

	wrapperValue = 1
)

var (
	errTooManyDescriptors = fmt.Errorf("the request has more than %d descriptors: send fewer", MaxDescriptors)
	errTooManyEntries     = fmt.Errorf("a descriptor has more than %d entries: send fewer", MaxEntries)
	errFieldNumber        = errors.New("a field's number is out of range")
)

// decoder turns serialized RateLimitRequests into ratelimit.Requests. It accepts what the generated type accepts, with the
// same result, and strings that are not UTF-8 beside; unknown fields are skipped. It owns the memory of the requests' slices
// and of their overrides, and the strings are the serialized message's own bytes.
type decoder struct {
	descriptors []ratelimit.Descriptor
	entries     []ratelimit.Entry
	limits      []ratelimit.Limit
}

func (d *decoder) reset() {
	d.descriptors = d.descriptors[:0]
	d.entries = d.entries[:0]
	d.limits = d.limits[:0]
}

// decode reads message into request, which must be zero. The request is valid until the next reset, and as long as message
// does not change.
func (d *decoder) decode(message []byte, request *ratelimit.Request) error {
	first := len(d.descriptors)
	var hits uint32
	for len(message) > 0 {
		field, kind, n, err := consumeTag(message)
		if err != nil {
			return err
		}
		message = message[n:]
		switch {
		case field == requestDomain && kind == protowire.BytesType:
			value, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			request.Domain = text(value)
			message = message[n:]
		case field == requestDescriptors && kind == protowire.BytesType:
			value, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			if len(d.descriptors)-first == MaxDescriptors {
				return errTooManyDescriptors
			}
			if err := d.descriptor(value); err != nil {
				return err
			}
			message = message[n:]
		case field == requestHitsAddend && kind == protowire.VarintType:
			value, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			hits = uint32(value)
			message = message[n:]
		default:
			if message, err = skip(message, field, kind); err != nil {
				return err
			}
		}
	}
	request.Cost = max(1, int64(hits))
	request.Descriptors = d.descriptors[first:len(d.descriptors):len(d.descriptors)]
	for i := range request.Descriptors {
		if descriptor := &request.Descriptors[i]; !descriptor.HasCost && descriptor.Cost == negative {
			descriptor.Cost, descriptor.HasCost = -request.Cost, true
		}
	}
	return nil
}

// negative stands in a descriptor's cost until the request's is known: is_negative_hits without hits_addend.
const negative = -1

func (d *decoder) descriptor(message []byte) error {
	var (
		first      = len(d.entries)
		replace    override
		hasLimit   bool
		hits       uint64
		hasHits    bool
		isNegative bool
	)
	for len(message) > 0 {
		field, kind, n, err := consumeTag(message)
		if err != nil {
			return err
		}
		message = message[n:]
		switch {
		case field <= descriptorHitsAddend && kind == protowire.BytesType:
			value, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			switch field {
			case descriptorEntries:
				if len(d.entries)-first == MaxEntries {
					return errTooManyEntries
				}
				err = d.entry(value)
			case descriptorLimit:
				hasLimit = true
				err = replace.decode(value)
			default: // descriptorHitsAddend
				hasHits = true
				err = decodeWrapper(value, &hits)
			}
			if err != nil {
				return err
			}
		case field == descriptorNegative && kind == protowire.VarintType:
			value, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			isNegative = value != 0
			message = message[n:]
		default:
			if message, err = skip(message, field, kind); err != nil {
				return err
			}
		}
	}
	descriptor := ratelimit.Descriptor{Entries: d.entries[first:len(d.entries):len(d.entries)]}
	if hasHits {
		descriptor.Cost, descriptor.HasCost = int64(min(hits, math.MaxInt64)), true
		if isNegative {
			descriptor.Cost = -descriptor.Cost
		}
	} else if isNegative {
		descriptor.Cost = negative
	}
	if hasLimit {
		d.limits = append(d.limits, replace.limit())
		descriptor.Limit = &d.limits[len(d.limits)-1]
	}
	d.descriptors = append(d.descriptors, descriptor)
	return nil
}

func (d *decoder) entry(message []byte) error {
	var entry ratelimit.Entry
	for len(message) > 0 {
		field, kind, n, err := consumeTag(message)
		if err != nil {
			return err
		}
		message = message[n:]
		if field > entryValue || kind != protowire.BytesType {
			if message, err = skip(message, field, kind); err != nil {
				return err
			}
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if field == entryKey {
			entry.Key = text(value)
		} else {
			entry.Value = text(value)
		}
		message = message[n:]
	}
	d.entries = append(d.entries, entry)
	return nil
}

// decodeWrapper reads a UInt32Value or UInt64Value. Without a value in it the old one stays, as merging messages asks for.
func decodeWrapper(message []byte, value *uint64) error {
	for len(message) > 0 {
		field, kind, n, err := consumeTag(message)
		if err != nil {
			return err
		}
		message = message[n:]
		if field != wrapperValue || kind != protowire.VarintType {
			if message, err = skip(message, field, kind); err != nil {
				return err
			}
			continue
		}
		if *value, n = protowire.ConsumeVarint(message); n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
	}
	return nil
}

func consumeTag(message []byte) (protowire.Number, protowire.Type, int, error) {
	field, kind, n := protowire.ConsumeTag(message)
	if n < 0 {
		return 0, 0, 0, protowire.ParseError(n)
	}
	if field > protowire.MaxValidNumber {
		return 0, 0, 0, errFieldNumber
	}
	return field, kind, n, nil
}

// skip returns message without the value of an unknown field, or of a known one whose wire type is another.
func skip(message []byte, field protowire.Number, kind protowire.Type) ([]byte, error) {
	n := protowire.ConsumeFieldValue(field, kind, message)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	return message[n:], nil
}

// text makes a string of b without copying it.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
