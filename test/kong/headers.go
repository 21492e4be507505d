package kong

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// marshalHeaders writes a google.protobuf.Struct as lua-protobuf does: strings may hold any bytes. A value with commas becomes
// a list, as headers that came several times are.
func marshalHeaders(all map[string]string) []byte {
	var out []byte
	for name, value := range all {
		var entry []byte
		entry = protowire.AppendTag(entry, 1, protowire.BytesType)
		entry = protowire.AppendString(entry, strings.ToLower(name))
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendBytes(entry, marshalValue(value))
		out = protowire.AppendTag(out, 1, protowire.BytesType)
		out = protowire.AppendBytes(out, entry)
	}
	return out
}

func marshalValue(value string) []byte {
	single := func(text string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), text)
	}
	first, rest, several := strings.Cut(value, ",")
	if !several {
		return single(value)
	}
	var list []byte
	for _, text := range []string{first, rest} {
		list = protowire.AppendBytes(protowire.AppendTag(list, 1, protowire.BytesType), single(strings.TrimSpace(text)))
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), list)
}
