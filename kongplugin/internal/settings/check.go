package settings

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/kongplugin/internal/schema"
)

// needs says which fields of an entry a source takes.
type needs struct {
	name   bool     // a name
	fields []string // the values of field, the first of which is the default
	value  bool     // a value
}

var sources = map[string]needs{
	"consumer":   {fields: []string{"id", "username", "custom_id"}},
	"credential": {fields: []string{"id"}},
	"ip":         {},
	"service":    {fields: []string{"id", "name", "host"}},
	"route":      {fields: []string{"id", "name"}},
	"header":     {name: true},
	"path":       {},
	"method":     {},
	"query_arg":  {name: true},
	"jwt_claim":  {name: true},
	"value":      {value: true},
}

// check reports what no single setting shows.
func (s *Settings) check() []error {
	var problems []error
	fault := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w: %s", schema.ErrConfig, fmt.Sprintf(format, args...)))
	}
	if _, err := s.Windows(); err != nil {
		problems = append(problems, err)
	}
	windows := s.hasPeriods() || len(s.Limit) > 0 || len(s.WindowSize) > 0
	switch {
	case s.Simple() && !windows:
		fault("no limits: set one of second to year, limit with window_size, or descriptors")
	case !s.Simple() && windows:
		fault("both limits and descriptors are set: limits count here, descriptors by weir's rules; keep one of them")
	}
	for _, way := range s.Ways() {
		for _, need := range []struct{ way, setting, value string }{
			{"header", "header_name", s.HeaderName},
			{"query_arg", "query_arg", s.QueryArg},
			{"jwt_claim", "claim_name", s.ClaimName},
		} {
			if s.Simple() && way == need.way && need.value == "" {
				fault("limiting by %s needs %s: set it", way, need.setting)
			}
		}
	}
	for i := 1; i < len(s.CompoundIdentifier); i++ {
		if slices.Contains(s.CompoundIdentifier[:i], s.CompoundIdentifier[i]) {
			fault("compound_identifier: %s stands there twice", s.CompoundIdentifier[i])
		}
	}
	for i := range s.Descriptors {
		for j := range s.Descriptors[i].Entries {
			if problem := s.Descriptors[i].Entries[j].problem(); problem != "" {
				fault("descriptors[%d].entries[%d]: %s", i+1, j+1, problem)
			}
		}
	}
	if s.Mode == "embedded" && !s.Simple() && s.RulesPath == "" {
		fault("descriptors in mode embedded need rules: set rules_path")
	}
	if s.Mode == "grpc" && s.Fallback == "local" && !s.Simple() && s.RulesPath == "" {
		fault("fallback local with descriptors needs rules in this process: set rules_path, or fallback none")
	}
	if s.FallbackFraction == 0 {
		fault("fallback_fraction is 0, which allows nothing: write a number above 0, at most 1")
	}
	if s.GRPC.CertFile != "" != (s.GRPC.KeyFile != "") {
		fault("grpc: cert_file and key_file belong together: set both")
	}
	return append(problems, s.checkRedis()...)
}

func (e *Entry) problem() string {
	need := sources[e.Source]
	switch {
	case need.name && e.Name == "":
		return "source " + e.Source + " needs a name: set it"
	case !need.name && e.Name != "":
		return "source " + e.Source + " has no name: leave it out"
	case need.value && e.Value == "":
		return "source value needs a value: set it"
	case !need.value && e.Value != "":
		return "source " + e.Source + " has no value of its own: leave value out, or use default"
	case e.Field != "" && !slices.Contains(need.fields, e.Field):
		return fmt.Sprintf("source %s has no field %s: write one of %v", e.Source, e.Field, need.fields)
	}
	return ""
}

func (s *Settings) checkRedis() []error {
	places := 0
	for _, set := range []bool{s.Redis.Host != "", s.Redis.Socket != "", len(s.Redis.SentinelNodes) > 0, len(s.Redis.ClusterNodes) > 0} {
		if set {
			places++
		}
	}
	switch {
	case places > 1:
		return []error{fmt.Errorf("%w: redis: host, socket, sentinel_nodes and cluster_nodes exclude each other: keep one", schema.ErrConfig)}
	case (len(s.Redis.SentinelNodes) > 0) != (s.Redis.SentinelMaster != ""):
		return []error{fmt.Errorf("%w: redis: sentinel_master and sentinel_nodes belong together: set both", schema.ErrConfig)}
	}
	return nil
}

// Ways are the ways in which a simple config tells clients apart, in order.
func (s *Settings) Ways() []string {
	if len(s.CompoundIdentifier) > 0 {
		return s.CompoundIdentifier
	}
	return []string{s.LimitBy}
}
