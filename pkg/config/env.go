package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weirhq/weir/pkg/nearest"
)

// EnvFile is the variable that names the configuration file. It is not a setting: the command line reads it.
const EnvFile = "WEIR_CONFIG"

// applyEnv sets what environ, a list of NAME=VALUE, says, and remembers in places where it came from.
func applyEnv(c *Config, environ []string, places map[string]place) Problems {
	byName := make(map[string]setting)
	names := []string{EnvFile}
	for _, s := range settings(c) {
		byName[s.env()] = s
		names = append(names, s.env())
	}
	var problems Problems
	// Sorted, so that the same environment always gives the same errors in the same order.
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, EnvPrefix) || name == EnvFile || fromServiceLink(name, value) {
			continue
		}
		s, ok := byName[name]
		if !ok {
			problems = append(problems, &Problem{Where: name, Message: unknownVariable(name, names)})
			continue
		}
		places[s.path] = place{text: name}
		if err := set(s.value, value); err != nil {
			problems = append(problems, &Problem{Where: name, Setting: s.path, Message: err.Error()})
		}
	}
	return problems
}

func unknownVariable(name string, known []string) string {
	if near := nearest.Name(name, known); near != "" {
		return fmt.Sprintf("no setting has this variable: did you mean %s?", near)
	}
	return fmt.Sprintf("no setting has this variable: variables that begin with %s are settings, unset or rename it", EnvPrefix)
}

// serviceLink matches the variables that Kubernetes and Docker put into containers for a service named weir or weir-*.
var serviceLink = regexp.MustCompile(`^WEIR_([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// portLink matches the value of such a service's ..._PORT, which may have a setting's name: a service weir-redis-cluster
// gives WEIR_REDIS_CLUSTER_PORT, a service weir-server WEIR_SERVER_PORT.
var portLink = regexp.MustCompile(`^(tcp|udp|sctp)://\S+:[0-9]+$`)

func fromServiceLink(name, value string) bool {
	return serviceLink.MatchString(name) || strings.HasSuffix(name, "_PORT") && portLink.MatchString(value)
}
