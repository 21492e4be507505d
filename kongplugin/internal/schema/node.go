package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// object is a JSON object, or a Lua table, whose members keep their order.
type object []member

type member struct {
	name  string
	value any // object, list, string, bool, int, float64
}

type list []any

// MarshalJSON writes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// lineLength is where a Lua table that stands on one line becomes one of several lines.
const lineLength = 110

// lua writes a value as a Lua expression. Names are identifiers: none of the schema's is a word of Lua's.
func lua(value any, indent string) string {
	var parts []string
	deeper := indent + "  "
	switch v := value.(type) {
	case object:
		for _, m := range v {
			parts = append(parts, m.name+" = "+lua(m.value, deeper))
		}
	case list:
		for _, element := range v {
			parts = append(parts, lua(element, deeper))
		}
	case string:
		return luaString(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
	line := "{ " + strings.Join(parts, ", ") + " }"
	if len(indent)+len(line) <= lineLength && !strings.Contains(line, "\n") {
		return line
	}
	return "{\n" + deeper + strings.Join(parts, ",\n"+deeper) + ",\n" + indent + "}"
}

// luaString quotes text, of which all but visible ASCII is escaped by its decimal code.
func luaString(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&out, "\\%03d", c)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}
