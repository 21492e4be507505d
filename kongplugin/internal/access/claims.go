package access

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
)

// maxToken bounds the tokens that are looked into.
const maxToken = 16 << 10

// claims are what a token says. They are not verified: an authentication plugin that runs before this one does that.
type claims map[string]any

// readClaims reads the claims of a bearer token; none, but not nil, if there are none to be read.
func readClaims(authorization string) claims {
	none := claims{}
	scheme, token, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	if !strings.EqualFold(scheme, "bearer") || len(token) > maxToken {
		return none
	}
	_, rest, _ := strings.Cut(strings.TrimSpace(token), ".")
	payload, _, ok := strings.Cut(rest, ".")
	if !ok {
		return none
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(payload, "="))
	if err != nil {
		return none
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var found claims
	if decoder.Decode(&found) != nil || found == nil {
		return none
	}
	return found
}

// text returns a claim that is a string, number or boolean. The name is one claim's as it is written, dots included, or else
// leads into objects: realm_access.client.
func (c claims) text(name string) string {
	if value, ok := c[name]; ok {
		return scalar(value)
	}
	head, rest, ok := strings.Cut(name, ".")
	if !ok {
		return ""
	}
	inner, _ := c[head].(map[string]any)
	return claims(inner).text(rest)
}

func scalar(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	default:
		return ""
	}
}
