package access

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/Kong/go-pdk/server/kong_plugin_protocol"

	"github.com/weirhq/weir/kongplugin/internal/pdk"
)

// lookup asks Kong about one request, each thing at most once.
type lookup struct {
	kong     *pdk.Kong
	address  string
	consumer *kong_plugin_protocol.Consumer
	route    *kong_plugin_protocol.Route
	service  *kong_plugin_protocol.Service
	query    url.Values
	claims   claims
	texts    map[string]string // by way, or by way and name
}

// value returns what a source says of the request; "" if it says nothing.
func (l *lookup) value(from *source) (string, error) {
	switch from.way {
	case "value":
		return from.value, nil
	case "ip":
		return l.ip()
	case "consumer":
		return l.consumerField(from.field)
	case "credential":
		return l.once("credential", l.kong.Credential)
	case "service":
		return l.serviceField(from.field)
	case "route":
		return l.routeField(from.field)
	case "header":
		return l.header(from.name)
	case "path":
		path, err := l.once("path", l.kong.Path)
		if from.value != "" && path != from.value {
			path = ""
		}
		return path, err
	case "method":
		return l.once("method", l.kong.Method)
	case "query_arg":
		return l.queryArg(from.name)
	case "jwt_claim":
		return l.claim(from.name)
	default:
		return "", fmt.Errorf("unknown source %q", from.way)
	}
}

func (l *lookup) once(key string, ask func() (string, error)) (string, error) {
	if text, ok := l.texts[key]; ok {
		return text, nil
	}
	text, err := ask()
	if err != nil {
		return "", err
	}
	if l.texts == nil {
		l.texts = make(map[string]string)
	}
	l.texts[key] = text
	return text, nil
}

func (l *lookup) ip() (string, error) {
	var err error
	if l.address == "" {
		l.address, err = l.kong.ForwardedIP()
	}
	return l.address, err
}

// requestID is the id that Kong gave the request.
func (l *lookup) requestID() (string, error) { return l.once("request id", l.kong.RequestID) }

func (l *lookup) header(name string) (string, error) {
	return l.once("header "+strings.ToLower(name), func() (string, error) { return l.kong.Header(name) })
}

func (l *lookup) consumerField(field string) (string, error) {
	if l.consumer == nil {
		var err error
		if l.consumer, err = l.kong.Consumer(); err != nil {
			return "", err
		}
	}
	switch field {
	case "username":
		return l.consumer.GetUsername(), nil
	case "custom_id":
		return l.consumer.GetCustomId(), nil
	default:
		return l.consumer.GetId(), nil
	}
}

func (l *lookup) routeField(field string) (string, error) {
	if l.route == nil {
		var err error
		if l.route, err = l.kong.Route(); err != nil {
			return "", err
		}
	}
	if field == "name" {
		return l.route.GetName(), nil
	}
	return l.route.GetId(), nil
}

func (l *lookup) serviceField(field string) (string, error) {
	if l.service == nil {
		var err error
		if l.service, err = l.kong.Service(); err != nil {
			return "", err
		}
	}
	switch field {
	case "name":
		return l.service.GetName(), nil
	case "host":
		return l.service.GetHost(), nil
	default:
		return l.service.GetId(), nil
	}
}

func (l *lookup) queryArg(name string) (string, error) {
	if l.query == nil {
		raw, err := l.kong.RawQuery()
		if err != nil {
			return "", err
		}
		l.query, _ = url.ParseQuery(raw) // what can be read of it
	}
	return l.query.Get(name), nil
}

func (l *lookup) claim(name string) (string, error) {
	if l.claims == nil {
		header, err := l.header("authorization")
		if err != nil {
			return "", err
		}
		l.claims = readClaims(header)
	}
	return l.claims.text(name), nil
}

// printable returns text as it is if it is UTF-8, which descriptors must be on the wire; else with each byte that is not
// written as %XX.
func printable(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size <= 1 {
			fmt.Fprintf(&out, "%%%02X", text[i])
			i++
			continue
		}
		out.WriteString(text[i : i+size])
		i += size
	}
	return out.String()
}
