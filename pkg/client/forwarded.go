package client

import (
	"slices"
	"strings"
)

// forwardedElements yields the parameter "for" of each element of a Forwarded field line (RFC 7239, section 4), the last one
// first. false stands for an element without one. A line that is not of the grammar yields one false: whether a quote of
// the client's or of the proxy's is missing cannot be told.
func forwardedElements(line string) func(yield func(string, bool) bool) {
	return func(yield func(string, bool) bool) {
		nodes, ok := parseForwarded(line)
		if !ok {
			yield("", false)
			return
		}
		for _, node := range slices.Backward(nodes) {
			if !yield(node, node != "") {
				return
			}
		}
	}
}

// parseForwarded returns the parameter "for" of each element, empty where an element has none.
func parseForwarded(line string) (nodes []string, ok bool) {
	if len(line) > maxForwarded {
		return nil, false
	}
	for rest := line; ; {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return nodes, true
		}
		if rest[0] == ',' {
			rest = rest[1:]
			continue
		}
		var node string
		if node, rest, ok = forwardedElement(rest); !ok {
			return nil, false
		}
		nodes = append(nodes, node)
	}
}

// forwardedElement reads pairs joined by semicolons, up to and including the comma behind them.
func forwardedElement(text string) (node, rest string, ok bool) {
	seen := false
	for {
		name, after := token(text)
		if name == "" || !strings.HasPrefix(after, "=") {
			return "", "", false
		}
		value, after, good := pairValue(after[1:])
		if !good {
			return "", "", false
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return "", "", false
			}
			node, seen = value, true
		}
		after = strings.TrimLeft(after, " \t")
		switch {
		case after == "":
			return node, "", true
		case after[0] == ',':
			return node, after[1:], true
		case after[0] != ';':
			return "", "", false
		}
		if text = strings.TrimLeft(after[1:], " \t"); text == "" || text[0] == ',' { // some proxies end with a semicolon
			return node, strings.TrimPrefix(text, ","), true
		}
	}
}

// pairValue reads a token or a quoted string (RFC 9110, section 5.6.4).
func pairValue(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		value, rest = token(text)
		return value, rest, value != ""
	}
	var unquoted strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return unquoted.String(), text[i+1:], true
		case '\\':
			if i++; i == len(text) {
				return "", "", false
			}
			unquoted.WriteByte(text[i])
		default:
			unquoted.WriteByte(text[i])
		}
	}
	return "", "", false
}

// token reads a token, and the colons that some proxies leave unquoted.
func token(text string) (token, rest string) {
	end := 0
	for end < len(text) && isTokenByte(text[end]) {
		end++
	}
	return text[:end], text[end:]
}

func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return strings.IndexByte("!#$%&'*+-.^_`|~:[]", c) >= 0
	}
}
