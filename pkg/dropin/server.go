package dropin

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/respond"
)

// The longest times that weir's settings take.
const (
	maxAge   = 24 * time.Hour
	maxGrace = time.Hour
)

// assigned gives a setting the variable's value, or its default.
func assigned(setting string) func(*mapping, *Variable) {
	return func(m *mapping, v *Variable) { m.assign(v.Name, setting, m.plain(v.Name)) }
}

// host gives a setting the address of a listener. WEIR_SERVER_HOST stands for all of those that are not set.
func host(setting string) func(*mapping, *Variable) {
	return func(m *mapping, v *Variable) {
		if m.set(v.Name) || !m.own("WEIR_SERVER_HOST") {
			m.assign(v.Name, setting, m.text(v.Name))
		}
	}
}

// path gives a setting the path of a file, if there is one.
func path(setting string) func(*mapping, *Variable) {
	return func(m *mapping, v *Variable) { m.file(v.Name, setting) }
}

// atMost gives a setting a duration, or the longest that it takes.
func atMost(setting string, longest time.Duration) func(*mapping, *Variable) {
	return func(m *mapping, v *Variable) {
		d := m.duration(v.Name)
		if d > longest {
			m.notice(v.Name, "%s is more than weir waits: %s takes its place", d, longest)
			d = longest
		}
		m.assign(v.Name, setting, d.String())
	}
}

func grpcSocket(m *mapping, v *Variable) {
	path := m.text(v.Name)
	switch {
	case path == "":
		return
	case m.bool("GRPC_SERVER_USE_TLS"):
		m.fault(v.Name, "%q cannot be protected: sockets have no TLS, set GRPC_SERVER_USE_TLS to false, or use GRPC_PORT", path)
		return
	}
	m.assign(v.Name, "server.fast.socket", path)
	m.assign(v.Name, "server.fast.enabled", "false")
}

func serverTLS(m *mapping, v *Variable) {
	if !m.bool(v.Name) {
		return
	}
	for _, name := range []string{"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"} {
		if m.text(name) == "" {
			m.fault(name, "is empty while GRPC_SERVER_USE_TLS is true: name a PEM file, or set that to false")
		}
	}
	m.file("GRPC_SERVER_TLS_CERT", "tls.cert_file")
	m.file("GRPC_SERVER_TLS_KEY", "tls.key_file")
	m.assign(v.Name, "tls.http", "false")
	const ca, gatewayCA, san = "GRPC_CLIENT_TLS_CACERT", "GRPC_SERVER_TLS_CA_CERT", "GRPC_CLIENT_TLS_SAN"
	given := ca
	if m.text(ca) == "" {
		given = gatewayCA
	} else if other := m.text(gatewayCA); other != "" && other != m.text(ca) {
		m.notice(gatewayCA, "has no effect: %s takes its place", ca)
	}
	m.file(given, "tls.client_ca_file")
	if name := m.text(san); name != "" {
		if m.text(given) == "" {
			m.notice(san, "has no effect, because clients are not asked for certificates: set %s", ca)
			return
		}
		m.list(san, "tls.client_names", []string{name})
	}
}

// logLevels are the words of logrus, in weir's.
var logLevels = map[string]string{
	"panic": "error", "fatal": "error", "error": "error", "warn": "warn", "warning": "warn", "info": "info", "debug": "debug", "trace": "debug",
}

func logLevel(m *mapping, v *Variable) {
	level, ok := logLevels[strings.ToLower(m.text(v.Name))]
	if !ok {
		m.fault(v.Name, "%q is no level: write debug, info, warn or error", m.text(v.Name))
		return
	}
	m.assign(v.Name, "log.level", level)
}

// logFormat takes everything but json for text, as envoyproxy/ratelimit does.
func logFormat(m *mapping, v *Variable) {
	value := m.text(v.Name)
	if strings.EqualFold(value, config.LogJSON) {
		m.assign(v.Name, "log.format", config.LogJSON)
		return
	}
	if !strings.EqualFold(value, config.LogText) {
		m.notice(v.Name, "%q is neither text nor json: text takes its place", value)
	}
	m.assign(v.Name, "log.format", config.LogText)
}

func replyHeaders(m *mapping, v *Variable) {
	if !m.bool(v.Name) {
		return
	}
	m.list(v.Name, "envoy.response_headers", []string{"custom"})
	m.assign(v.Name, "envoy.retry_after", "false")
	const limit, remaining, reset = "LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"
	for _, name := range []string{limit, remaining, reset} {
		if header := m.text(name); header != "" {
			m.headers(name, respond.Names{Limit: header})
		}
	}
	if len(m.problems) == 0 {
		m.headers(v.Name, respond.Names{Limit: m.text(limit), Remaining: m.text(remaining), Reset: m.text(reset)})
	}
}

// headers reports names of headers that cannot be sent.
func (m *mapping) headers(variable string, names respond.Names) {
	if _, err := respond.New(respond.Options{Styles: respond.Custom, Names: names}); err != nil {
		m.fault(variable, "%s", strings.TrimPrefix(err.Error(), respond.ErrOptions.Error()+": "))
	}
}

// bytesPerDenial is about what a denied counter takes in envoyproxy/ratelimit's cache: 24 bytes, the key, the index.
const bytesPerDenial = 128

// maxDenials is the most that redis.deny_cache takes.
const maxDenials = 100_000_000

func localCache(m *mapping, v *Variable) {
	if !m.countsInRedis() {
		if m.integer(v.Name) != 0 {
			m.notice(v.Name, "has no effect: counters are in this process's memory")
		}
		return
	}
	size := m.integer(v.Name)
	if size < 0 {
		m.fault(v.Name, "%d is no size: write 0 for no cache, or a number of bytes", size)
		return
	}
	entries := min(size/bytesPerDenial, maxDenials)
	if size > 0 {
		entries = max(entries, 1)
	}
	m.assign(v.Name, "redis.deny_cache", strconv.FormatInt(entries, 10))
}

// jitter is for counters in Redis: those in memory end with their window.
func jitter(m *mapping, v *Variable) {
	seconds := m.integer(v.Name)
	if seconds < 0 || seconds > int64(maxJitter/time.Second) {
		m.fault(v.Name, "%d is out of range: write 0 to %d seconds", seconds, int64(maxJitter/time.Second))
		return
	}
	m.assign(v.Name, "ratelimit.key_expiry_jitter", (time.Duration(seconds) * time.Second).String())
}

const maxJitter = 24 * time.Hour

func backend(m *mapping, v *Variable) {
	if value := m.text(v.Name); !slices.Contains([]string{"redis", ""}, value) {
		m.fault(v.Name, "%q cannot be used: weir counts in Redis (a Valkey or a Dragonfly will do), or in its own memory: write redis and set REDIS_SOCKET_TYPE=tcp and REDIS_URL=HOST:PORT", value)
	}
}
