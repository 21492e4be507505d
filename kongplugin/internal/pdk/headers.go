package pdk

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of google.protobuf.Struct, its map's entries, Value and ListValue.
const (
	structFields = 1
	entryKey     = 1
	entryValue   = 2
	valueString  = 3
	valueList    = 6
	listValues   = 1
)

// pick reads the headers with these names from a google.protobuf.Struct. It does so by hand, because a header of any other
// name may hold bytes that are not UTF-8, for which the whole message would be refused.
func pick(message []byte, names []string) (map[string]string, error) {
	found := make(map[string]string, len(names))
	err := each(message, func(number protowire.Number, entry []byte) error {
		if number != structFields {
			return nil
		}
		var key string
		var value []byte
		err := each(entry, func(number protowire.Number, field []byte) error {
			switch number {
			case entryKey:
				key = strings.ToLower(string(field))
			case entryValue:
				value = field
			default:
			}
			return nil
		})
		if err != nil || !slices.Contains(names, key) {
			return err
		}
		texts, err := texts(value, nil, 0)
		found[key] = strings.Join(texts, ", ")
		return err
	})
	return found, err
}

// texts appends the strings of a Value: its own, or those of its list.
func texts(value []byte, dst []string, depth int) ([]string, error) {
	err := each(value, func(number protowire.Number, field []byte) (err error) {
		switch {
		case number == valueString:
			dst = append(dst, string(field))
		case number == valueList && depth == 0:
			err = each(field, func(number protowire.Number, element []byte) (err error) {
				if number == listValues {
					dst, err = texts(element, dst, 1)
				}
				return err
			})
		}
		return err
	})
	return dst, err
}

// each calls visit with each field of a message that has bytes, and skips the others.
func each(message []byte, visit func(number protowire.Number, field []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		field, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if err := visit(number, field); err != nil {
			return err
		}
	}
	return nil
}
