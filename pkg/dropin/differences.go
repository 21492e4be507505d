package dropin

import (
	"slices"
	"strings"
)

// difference is something that people notice after the swap although every variable is honoured.
type difference struct {
	text string
	when func(*mapping) bool // nil: always
}

var differences = []difference{
	{"While Redis is slow or away requests pass after " + weirDeadline.String() + " at most, and at once after a few failures; envoyproxy/ratelimit answers with an error after REDIS_TIMEOUT. failure.mode: deny, or local, changes that.", (*mapping).countsInRedis},
	{"Without REDIS_URL counters are in this process's memory: replicas do not share them, and a restart forgets them. Set redis.url to share them.", func(m *mapping) bool { return !m.countsInRedis() }},
	{"Health is good while Redis is away, because requests are answered then too. server.ready_needs: [redis] changes that.", func(m *mapping) bool {
		return m.countsInRedis() && !m.bool("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION")
	}},
	{"A rule file with a fault changes nothing, as before, and the log names its line and what to write instead; rule files end in .yaml or .yml.", func(m *mapping) bool { return byFile.holds(m) }},
	{"With GRPC_CLIENT_TLS_CACERT client certificates must come from the file of CAs; those of the system are not accepted beside it.", func(m *mapping) bool {
		return grpcTLS.holds(m) && m.text("GRPC_CLIENT_TLS_CACERT")+m.text("GRPC_SERVER_TLS_CA_CERT") != ""
	}},
	{"With LOG_FORMAT=json lines of the log have weir's fields: time, level, msg, not @timestamp, level, @message.", func(m *mapping) bool { return strings.EqualFold(m.text("LOG_FORMAT"), "json") }},
	{"SIGTERM is followed by server.drain_delay (3s) of service with health NOT_SERVING before connections are ended; SIGHUP loads the rules again, and does not end the process.", nil},
	{"gRPC health answers Check, not Watch, on GRPC_PORT; both on WEIR_SERVER_GRPC_PORT, if that is set.", nil},
	{"/json takes POST alone.", nil},
}

// Differences returns what people would notice after the swap, beside the notices of a translation.
func Differences(environ []string) []string {
	m := &mapping{table: table, values: map[string]string{}}
	for _, variable := range environ {
		if name, value, ok := strings.Cut(variable, "="); ok {
			m.values[name] = value
		}
	}
	var all []string
	for _, d := range differences {
		if d.when == nil || d.when(m) {
			all = append(all, d.text)
		}
	}
	return all
}

// harmless begins the names of variables that belong to other parts of a process.
var harmless = []string{"WEIR_", "OTEL_", "GO", "KUBERNETES_", "DD_", "PATH", "HOME", "HOSTNAME", "LANG", "LC_", "TZ", "SSL_CERT_", "POD_", "NODE_", "NAMESPACE"}

// Strangers returns a notice for each variable that envoyproxy/ratelimit does not know: one that is misspelt, perhaps.
func Strangers(environ []string) []Notice {
	var all []Notice
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		known := slices.ContainsFunc(table, func(v Variable) bool { return v.names(name) })
		other := slices.ContainsFunc(harmless, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if !known && !other {
			all = append(all, Notice{Variable: name, Text: "is no variable of envoyproxy/ratelimit, and is left alone"})
		}
	}
	return all
}
