package main

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// parseDescriptor reads "key=value,key=value", entries from the most general to the most specific. A backslash takes the
// next character as it is, so that a key or value can hold ',' '=' and '\'. "key" alone is an entry with an empty value.
func parseDescriptor(text string) ([]ratelimit.Entry, error) {
	var (
		entries  []ratelimit.Entry
		part     strings.Builder
		entry    ratelimit.Entry
		hasValue bool
	)
	finish := func() error {
		if hasValue {
			entry.Value = part.String()
		} else {
			entry.Key = part.String()
		}
		if entry.Key == "" {
			return fmt.Errorf("descriptor %q has an entry without a key: write key=value,key=value", text)
		}
		entries = append(entries, entry)
		entry, hasValue = ratelimit.Entry{}, false
		part.Reset()
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			part.WriteByte(text[i])
		case c == '=' && !hasValue:
			entry.Key, hasValue = part.String(), true
			part.Reset()
		case c == ',':
			if err := finish(); err != nil {
				return nil, err
			}
		default:
			part.WriteByte(c)
		}
	}
	if err := finish(); err != nil {
		return nil, err
	}
	return entries, nil
}
