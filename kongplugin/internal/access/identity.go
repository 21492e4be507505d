package access

import (
	"cmp"
	"strings"

	"github.com/weirhq/weir/kongplugin/internal/settings"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// source is where the value of one entry comes from.
type source struct {
	way   string // as in schema.Sources
	name  string // of a header, query argument or claim
	field string // of a consumer, route or service
	value string // for way "value"; for way "path" the only path that has an identity
}

// part is one entry of a descriptor that is still to be filled in.
type part struct {
	key      string
	source   source
	fallback string // what stands for a value that is not there; "": see on_missing
	// fixed keeps the key whatever the value is, because rules name it. Else a client address that stands in for an
	// identity is counted under a key of its own, so that no header can name somebody else's.
	fixed bool
}

// question is one descriptor to be asked about.
type question struct {
	parts  []part
	limits []ratelimit.Limit // overrides; empty: the rules'
	cost   *int64
}

// questions are what an instance asks for each request.
func questions(s *settings.Settings) ([]question, error) {
	if !s.Simple() {
		var asked []question
		for _, descriptor := range s.Descriptors {
			q := question{cost: descriptor.Cost}
			for _, e := range descriptor.Entries {
				q.parts = append(q.parts, part{
					key: e.Key, fixed: true, fallback: e.Default,
					source: source{way: e.Source, name: e.Name, field: e.Field, value: e.Value},
				})
			}
			asked = append(asked, q)
		}
		return asked, nil
	}
	limits, err := s.Windows()
	if err != nil {
		return nil, err
	}
	q := question{limits: limits, parts: scope(s)}
	for _, way := range s.Ways() {
		from := source{way: way}
		switch way {
		case "header":
			from.name = s.HeaderName
		case "query_arg":
			from.name = s.QueryArg
		case "jwt_claim":
			from.name = s.ClaimName
		case "path":
			from.value = s.Path
		}
		key := way
		if from.name != "" {
			key += "." + strings.ToLower(from.name)
		}
		q.parts = append(q.parts, part{key: key, source: from})
	}
	return []question{q}, nil
}

// scope keeps the counters of different plugins apart, as those of Kong's own are: by the route or service that the plugin
// is configured on, unless a namespace joins them.
func scope(s *settings.Settings) []part {
	constant := func(key, value string) part {
		return part{key: key, fixed: true, source: source{way: "value", value: value}}
	}
	if s.Namespace != "" {
		return []part{constant("namespace", s.Namespace)}
	}
	var parts []part
	if s.RouteID != "" {
		parts = append(parts, constant("plugin_route", s.RouteID))
	}
	if s.ServiceID != "" {
		parts = append(parts, constant("plugin_service", s.ServiceID))
	}
	return parts
}

// The names under which requests without an identity count.
const (
	missingValue = "missing"
	missingKey   = "missing"
	addressKey   = "ip"
)

// entries fills in a question's parts. It is not ok if the request has no identity and such requests are skipped.
func (l *lookup) entries(parts []part, onMissing string) (entries []ratelimit.Entry, ok bool, err error) {
	entries = make([]ratelimit.Entry, 0, len(parts))
	for i := range parts {
		p := &parts[i]
		value, err := l.value(&p.source)
		if err != nil {
			return nil, false, err
		}
		key := p.key
		if value = cmp.Or(value, p.fallback); value == "" {
			switch onMissing {
			case "skip":
				return nil, false, nil
			case "shared":
				value = missingValue
				if !p.fixed {
					key, value = missingKey, p.key
				}
			default:
				if value, err = l.ip(); err != nil {
					return nil, false, err
				}
				if !p.fixed {
					key = addressKey
				}
			}
		}
		entries = append(entries, ratelimit.Entry{Key: key, Value: printable(value)})
	}
	return entries, true, nil
}
