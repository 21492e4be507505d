package dropin_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/dropin"
)

// translation is one case: what an environment becomes. redis and xds are what many cases need beside their own variable.
type translation struct {
	of     string // the variable that the case is about
	env    string // NAME=VALUE, separated by spaces or, where there are any, by line breaks
	want   map[string]string
	notice string // part of a notice about of
	fault  string // part of a problem of of
}

const (
	redis = " REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379"
	xds   = " CONFIG_TYPE=GRPC_XDS_SOTW"
	tls   = " GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/certs/tls.crt GRPC_SERVER_TLS_KEY=/certs/tls.key"
	unset = "(not set)"
)

var cases = []translation{
	{of: "HOST", env: "HOST=127.0.0.1", want: values("server.host", "127.0.0.1", "server.debug_host", "0.0.0.0", "server.grpc_host", "0.0.0.0")},
	{of: "PORT", env: "PORT=9080", want: values("server.port", "9080")},
	{of: "PORT", env: "PORT=0x2378", want: values("server.port", "9080")},
	{of: "PORT", env: "PORT=tcp://10.0.0.1:80", fault: `"tcp://10.0.0.1:80" is no whole number`},
	{of: "STATSD_PORT", env: "STATSD_PORT=tcp://10.0.0.1:8125", fault: "enableServiceLinks: false"},
	{of: "PORT", env: "PORT=", fault: "is no whole number"},
	{of: "PORT", env: "PORT=70000", fault: "server.port: 70000 is out of range"},
	{of: "DEBUG_HOST", env: "DEBUG_HOST=127.0.0.1", want: values("server.debug_host", "127.0.0.1")},
	{of: "DEBUG_PORT", env: "DEBUG_PORT=9070", want: values("server.debug_port", "9070")},
	{of: "GRPC_HOST", env: "WEIR_SERVER_HOST=127.0.0.1", want: values("server.grpc_host", unset, "server.debug_host", unset)},
	{of: "GRPC_HOST", env: "GRPC_HOST=::", want: values("server.grpc_host", "::")},
	{of: "GRPC_HOST", env: "GRPC_HOST=no_such/host", fault: "is no address"},
	{of: "GRPC_PORT", env: "GRPC_PORT=9081", want: values("server.fast_port", "9081", "server.grpc_port", "-1")},
	{of: "GRPC_UDS", env: "GRPC_UDS=/run/ratelimit.sock", want: values("server.fast.socket", "/run/ratelimit.sock", "server.fast.enabled", "false")},
	{of: "GRPC_UDS", env: "GRPC_UDS=/run/ratelimit.sock" + tls, fault: "sockets have no TLS"},
	{of: "GRPC_MAX_CONNECTION_AGE", env: "GRPC_MAX_CONNECTION_AGE=5m", want: values("server.grpc.max_connection_age", "5m0s")},
	{of: "GRPC_MAX_CONNECTION_AGE", env: "", want: values("server.grpc.max_connection_age", "24h0m0s")},
	{of: "GRPC_MAX_CONNECTION_AGE", env: "GRPC_MAX_CONNECTION_AGE=720h", want: values("server.grpc.max_connection_age", "24h0m0s"), notice: "24h0m0s takes its place"},
	{of: "GRPC_MAX_CONNECTION_AGE", env: "GRPC_MAX_CONNECTION_AGE=-1s", fault: "is out of range"},
	{of: "GRPC_MAX_CONNECTION_AGE_GRACE", env: "GRPC_MAX_CONNECTION_AGE_GRACE=1m", want: values("server.grpc.max_connection_age_grace", "1m0s")},
	{of: "GRPC_MAX_CONNECTION_AGE_GRACE", env: "GRPC_MAX_CONNECTION_AGE_GRACE=soon", fault: `"soon" is no duration`},

	{of: "GRPC_SERVER_USE_TLS", env: tls, want: values("tls.cert_file", "/certs/tls.crt", "tls.key_file", "/certs/tls.key", "tls.http", "false", "tls.client_ca_file", unset)},
	{of: "GRPC_SERVER_USE_TLS", env: "GRPC_SERVER_USE_TLS=yes", fault: `"yes" is neither true nor false`},
	{of: "GRPC_SERVER_USE_TLS", env: "GRPC_SERVER_USE_TLS=F", want: values("tls.cert_file", unset)},
	{of: "GRPC_SERVER_TLS_CERT", env: "GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_KEY=/k", fault: "is empty while GRPC_SERVER_USE_TLS is true"},
	{of: "GRPC_SERVER_TLS_CERT", env: "GRPC_SERVER_TLS_CERT=/c", want: values("tls.cert_file", unset), notice: "has no effect, because it needs that GRPC_SERVER_USE_TLS is true"},
	{of: "GRPC_SERVER_TLS_KEY", env: "GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/c", fault: "is empty while"},
	{of: "GRPC_CLIENT_TLS_CACERT", env: tls + " GRPC_CLIENT_TLS_CACERT=/certs/ca.crt", want: values("tls.client_ca_file", "/certs/ca.crt")},
	{of: "GRPC_SERVER_TLS_CA_CERT", env: tls + " GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt", want: values("tls.client_ca_file", "/certs/ca.crt")},
	{of: "GRPC_SERVER_TLS_CA_CERT", env: tls + " GRPC_SERVER_TLS_CA_CERT=/a GRPC_CLIENT_TLS_CACERT=/b", want: values("tls.client_ca_file", "/b"), notice: "GRPC_CLIENT_TLS_CACERT takes its place"},
	{of: "GRPC_CLIENT_TLS_SAN", env: tls + " GRPC_CLIENT_TLS_CACERT=/ca GRPC_CLIENT_TLS_SAN=envoy.example.com", want: values("tls.client_names", "envoy.example.com")},
	{of: "GRPC_CLIENT_TLS_SAN", env: tls + " GRPC_CLIENT_TLS_SAN=envoy.example.com", want: values("tls.client_names", unset), notice: "clients are not asked for certificates"},

	{of: "LOG_LEVEL", env: "", want: values("log.level", "warn")},
	{of: "LOG_LEVEL", env: "LOG_LEVEL=Warning", want: values("log.level", "warn")},
	{of: "LOG_LEVEL", env: "LOG_LEVEL=TRACE", want: values("log.level", "debug")},
	{of: "LOG_LEVEL", env: "LOG_LEVEL=panic", want: values("log.level", "error")},
	{of: "LOG_LEVEL", env: "LOG_LEVEL=loud", fault: `"loud" is no level: write debug`},
	{of: "LOG_FORMAT", env: "LOG_FORMAT=JSON", want: values("log.format", "json")},
	{of: "LOG_FORMAT", env: "LOG_FORMAT=xml", want: values("log.format", "text"), notice: "text takes its place"},

	{of: "CONFIG_TYPE", env: "CONFIG_TYPE=GRPC_XDS_SOTW", want: values("rules.xds.server", "localhost:18000", "rules.xds.node_id", "default", "server.ready_needs", "first_rules", "rules.paths", unset)},
	{of: "CONFIG_TYPE", env: "CONFIG_TYPE=FILE", want: values("rules.paths", "/srv/runtime_data/current/config", "rules.xds.server", unset, "server.ready_needs", unset)},
	{of: "CONFIG_TYPE", env: "CONFIG_TYPE=file", fault: `"file" is no source of rules: write FILE or GRPC_XDS_SOTW`},
	{of: "FORCE_START_WITHOUT_INITIAL_CONFIG", env: "FORCE_START_WITHOUT_INITIAL_CONFIG=true" + xds, want: values("server.ready_needs", unset)},
	{of: "FORCE_START_WITHOUT_INITIAL_CONFIG", env: "FORCE_START_WITHOUT_INITIAL_CONFIG=false" + xds, want: values("server.ready_needs", "first_rules")},
	{of: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", env: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true", want: values("server.ready_needs", "rules")},
	{of: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", env: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true" + redis + xds, want: values("server.ready_needs", "first_rules,rules,redis")},
	{of: "MERGE_DOMAIN_CONFIG", env: "MERGE_DOMAIN_CONFIG=1", want: values("rules.merge_domains", "true")},
	{of: "RUNTIME_ROOT", env: "RUNTIME_ROOT=/data", want: values("rules.paths", "/data/config")},
	{of: "RUNTIME_ROOT", env: "RUNTIME_ROOT= RUNTIME_APPDIRECTORY=", fault: "name the folder that holds the rules"},
	{of: "RUNTIME_ROOT", env: "RUNTIME_ROOT=/data" + xds, want: values("rules.paths", unset), notice: "it needs that CONFIG_TYPE is FILE"},
	{of: "RUNTIME_SUBDIRECTORY", env: "RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit", want: values("rules.paths", "/data/ratelimit/config")},
	{of: "RUNTIME_APPDIRECTORY", env: "RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_APPDIRECTORY=limits", want: values("rules.paths", "/data/ratelimit/limits")},
	{of: "RUNTIME_WATCH_ROOT", env: "RUNTIME_ROOT=/data RUNTIME_WATCH_ROOT=false", want: values("rules.paths", "/data/config")},
	{of: "RUNTIME_WATCH_ROOT", env: "RUNTIME_WATCH_ROOT=maybe", fault: "is neither true nor false"},
	{of: "RUNTIME_IGNOREDOTFILES", env: "RUNTIME_IGNOREDOTFILES=true", want: values("rules.paths", "/srv/runtime_data/current/config")},
	{of: "RUNTIME_IGNOREDOTFILES", env: "RUNTIME_IGNOREDOTFILES=false", notice: "begin with a dot are no rules"},

	{of: "CONFIG_GRPC_XDS_SERVER_URL", env: "CONFIG_GRPC_XDS_SERVER_URL=dns:///envoy-gateway:18001" + xds, want: values("rules.xds.server", "envoy-gateway:18001")},
	{of: "CONFIG_GRPC_XDS_SERVER_URL", env: "CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway" + xds, fault: `"envoy-gateway" is no address`},
	{of: "CONFIG_GRPC_XDS_SERVER_URL", env: "CONFIG_GRPC_XDS_SERVER_URL=" + xds, fault: "is empty: write HOST:PORT"},
	{of: "CONFIG_GRPC_XDS_SERVER_URL", env: "CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001", want: values("rules.xds.server", unset), notice: "CONFIG_TYPE is GRPC_XDS_SOTW"},
	{of: "CONFIG_GRPC_XDS_NODE_ID", env: "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit" + xds, want: values("rules.xds.node_id", "envoy-ratelimit")},
	{of: "CONFIG_GRPC_XDS_NODE_METADATA", env: "CONFIG_GRPC_XDS_NODE_METADATA=region=eu,tier=web" + xds, want: values("rules.xds.node_metadata", "region=eu,tier=web")},
	{of: "CONFIG_GRPC_XDS_NODE_METADATA", env: "CONFIG_GRPC_XDS_NODE_METADATA=region:eu,tier=web" + xds, want: values("rules.xds.node_metadata", "tier=web"), notice: `"region:eu" is left out`},
	{of: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", env: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=authorization:Bearer=x,x-team:edge" + xds, want: values("rules.xds.headers", "authorization=Bearer=x,x-team=edge")},
	{of: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", env: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=sesame" + xds, fault: "NAME:VALUE"},
	{of: "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", env: "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=2s" + xds, want: values("rules.xds.connect_retry", "2s")},
	{of: "CONFIG_GRPC_XDS_SERVER_USE_TLS", env: "CONFIG_GRPC_XDS_SERVER_USE_TLS=true" + xds, want: values("rules.xds.tls.enabled", "true")},
	{of: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", env: "CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/c CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/k" + xds, want: values("rules.xds.tls.cert_file", "/c", "rules.xds.tls.key_file", "/k")},
	{of: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", env: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/c" + xds, want: values("rules.xds.tls.cert_file", unset), notice: "CONFIG_GRPC_XDS_SERVER_USE_TLS is true"},
	{of: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", env: "CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/k" + xds, fault: "is set without rules.xds.tls.cert_file"},
	{of: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", env: "CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/ca" + xds, want: values("rules.xds.tls.ca_file", "/ca")},
	{of: "CONFIG_GRPC_XDS_SERVER_TLS_SAN", env: "CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_SERVER_TLS_SAN=cp" + xds, want: values("rules.xds.tls.server_name", "cp")},
	{of: "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", env: "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=45s" + xds, want: values("rules.xds.backoff_initial", "45s", "rules.xds.backoff_max", "1m0s")},
	{of: "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", env: xds, want: values("rules.xds.backoff_initial", unset)},
	{of: "XDS_CLIENT_BACKOFF_MAX_INTERVAL", env: "XDS_CLIENT_BACKOFF_MAX_INTERVAL=20s" + xds, want: values("rules.xds.backoff_initial", "10s", "rules.xds.backoff_max", "20s")},
	{of: "XDS_CLIENT_BACKOFF_MAX_INTERVAL", env: "XDS_CLIENT_BACKOFF_MAX_INTERVAL=5s" + xds, fault: "less than rules.xds.backoff_initial"},
	{of: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", env: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR=0.5" + xds, want: values("rules.xds.backoff_factor", "1")},
	{of: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", env: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR=1.5" + xds, want: values("rules.xds.backoff_factor", "1.5")},
	{of: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", env: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR=much" + xds, fault: `"much" is no number`},
	{of: "XDS_CLIENT_BACKOFF_JITTER", env: "XDS_CLIENT_BACKOFF_JITTER=false" + xds, want: values("rules.xds.backoff_jitter", "false")},
	{of: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", env: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=33554432" + xds, want: values("rules.xds.max_message_bytes", "33554432")},
	{of: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", env: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=0" + xds, want: values("rules.xds.max_message_bytes", unset)},

	{of: "BACKEND_TYPE", env: "BACKEND_TYPE=redis", want: values("redis.addrs", unset)},
	{of: "BACKEND_TYPE", env: "BACKEND_TYPE=memcache", fault: `"memcache" cannot be used: weir counts in Redis`},
	{of: "REDIS_SOCKET_TYPE", env: "REDIS_SOCKET_TYPE=tls REDIS_URL=redis:6379", want: values("redis.addrs", "redis:6379", "redis.tls.enabled", "true")},
	{of: "REDIS_SOCKET_TYPE", env: "REDIS_SOCKET_TYPE=unix REDIS_URL=/run/redis.sock", want: values("redis.url", "unix:///run/redis.sock")},
	{of: "REDIS_SOCKET_TYPE", env: "REDIS_SOCKET_TYPE=udp REDIS_URL=redis:6379", fault: `"udp" is no kind of socket`},
	{of: "REDIS_TYPE", env: "REDIS_TYPE=cluster REDIS_URL=a:6379,b:6379", want: values("redis.mode", "cluster", "redis.addrs", "a:6379,b:6379")},
	{of: "REDIS_TYPE", env: "REDIS_TYPE=SENTINEL REDIS_URL=mymaster,a:26379,b:26379", want: values("redis.mode", "sentinel", "redis.master_name", "mymaster", "redis.addrs", "a:26379,b:26379")},
	{of: "REDIS_TYPE", env: "REDIS_TYPE=DUAL" + redis, fault: `"DUAL" is no kind of Redis: write SINGLE, SENTINEL or CLUSTER`},
	{of: "REDIS_URL", env: redis, want: values("redis.addrs", "redis:6379", "redis.deny_cache", "0", "redis.pool_size", unset, "redis.timeout_ms", unset)},
	{of: "REDIS_URL", env: "REDIS_URL=rediss://redis:6379", want: values("redis.url", "rediss://redis:6379", "redis.tls.enabled", "true")},
	{of: "REDIS_URL", env: "REDIS_URL=redis:6379", fault: `"redis:6379" is no path of a socket, which begins with /: write one, or set REDIS_SOCKET_TYPE=tcp`},
	{of: "REDIS_URL", env: "REDIS_SOCKET_TYPE=tcp REDIS_URL=redis", fault: `"redis" is no address: write host:port`},
	{of: "REDIS_URL", env: "REDIS_SOCKET_TYPE=tcp REDIS_URL=a:1,b:2", fault: "are 2 while redis.mode is single"},
	{of: "REDIS_URL", env: "REDIS_TYPE=SENTINEL REDIS_URL=mymaster", fault: "names no Sentinels"},
	{of: "REDIS_URL", env: "REDIS_URL=", fault: "is empty"},
	{of: "REDIS_URL", env: "", want: values("redis.url", unset, "redis.deny_cache", unset), notice: "counters are in this process's memory"},
	{of: "REDIS_URL", env: "WEIR_REDIS_URL=redis://other:6379" + redis, want: values("redis.addrs", unset), notice: "WEIR_REDIS_URL or WEIR_REDIS_ADDRS takes its place"},
	{of: "REDIS_AUTH", env: "REDIS_AUTH=sesame" + redis, want: values("redis.password", "sesame", "redis.username", unset)},
	{of: "REDIS_AUTH", env: "REDIS_AUTH=ann:se:same" + redis, want: values("redis.username", "ann", "redis.password", "se:same")},
	{of: "REDIS_SENTINEL_AUTH", env: "REDIS_SENTINEL_AUTH=ann:sesame REDIS_TYPE=SENTINEL REDIS_URL=m,a:1", want: values("redis.sentinel_username", "ann", "redis.sentinel_password", "sesame")},
	{of: "REDIS_SENTINEL_AUTH", env: "REDIS_SENTINEL_AUTH=sesame" + redis, want: values("redis.sentinel_password", unset), notice: "REDIS_TYPE is not SENTINEL"},
	{of: "REDIS_POOL_SIZE", env: "REDIS_POOL_SIZE=30" + redis, want: values("redis.pool_size", "30")},
	{of: "REDIS_POOL_SIZE", env: "REDIS_POOL_SIZE=0" + redis, fault: "redis.pool_size: 0 is out of range"},
	{of: "REDIS_TIMEOUT", env: "REDIS_TIMEOUT=50ms" + redis, want: values("redis.timeout_ms", "50")},
	{of: "REDIS_TIMEOUT", env: "REDIS_TIMEOUT=10s" + redis, want: values("redis.timeout_ms", unset), notice: "WEIR_REDIS_TIMEOUT_MS"},
	{of: "REDIS_TLS", env: "REDIS_TLS=true" + redis, want: values("redis.tls.enabled", "true")},
	{of: "REDIS_TLS_CLIENT_CERT", env: "REDIS_TLS=true REDIS_TLS_CLIENT_CERT=/c REDIS_TLS_CLIENT_KEY=/k" + redis, want: values("redis.tls.cert_file", "/c", "redis.tls.key_file", "/k")},
	{of: "REDIS_TLS_CLIENT_CERT", env: "REDIS_TLS_CLIENT_CERT=/c" + redis, want: values("redis.tls.cert_file", unset), notice: "REDIS_TLS or REDIS_PERSECOND_TLS is true"},
	{of: "REDIS_TLS_CLIENT_KEY", env: "REDIS_TLS=true REDIS_TLS_CLIENT_KEY=/k" + redis, fault: "is set without redis.tls.cert_file"},
	{of: "REDIS_TLS_CACERT", env: "REDIS_TLS=true REDIS_TLS_CACERT=/ca" + redis, want: values("redis.tls.ca_file", "/ca")},
	{of: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", env: "REDIS_TLS=true REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true" + redis, want: values("redis.tls.skip_name_check", "true")},
	{of: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", env: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true" + redis, want: values("server.ready_needs", "redis")},
	{of: "REDIS_PIPELINE_WINDOW", env: "REDIS_PIPELINE_WINDOW=150us" + redis, notice: "has no counterpart"},
	{of: "REDIS_PIPELINE_LIMIT", env: "REDIS_PIPELINE_LIMIT=8" + redis, notice: "has no counterpart"},
	{of: "REDIS_CLUSTER_PIPELINE_PARALLELISM", env: "REDIS_CLUSTER_PIPELINE_PARALLELISM=4", notice: "has no counterpart"},
	{of: "REDIS_POOL_ON_EMPTY_BEHAVIOR", env: "REDIS_POOL_ON_EMPTY_BEHAVIOR=CREATE", notice: "a call that finds no free connection waits"},
	{of: "REDIS_STARTUP_*", env: "REDIS_STARTUP_RETRIES=3", notice: "does not wait for Redis when it starts"},

	{of: "REDIS_PERSECOND", env: "REDIS_PERSECOND=true REDIS_PERSECOND_SOCKET_TYPE=tcp REDIS_PERSECOND_URL=fast:6379" + redis, want: values("redis_per_second.addrs", "fast:6379", "redis.addrs", "redis:6379")},
	{of: "REDIS_PERSECOND", env: "REDIS_PERSECOND=true", fault: "is true without a Redis for all other windows"},
	{of: "REDIS_PERSECOND_SOCKET_TYPE", env: "REDIS_PERSECOND=true REDIS_PERSECOND_SOCKET_TYPE=pigeon REDIS_PERSECOND_URL=fast:6379" + redis, fault: `"pigeon" is no kind of socket`},
	{of: "REDIS_PERSECOND_TYPE", env: "REDIS_PERSECOND=true REDIS_PERSECOND_TYPE=CLUSTER REDIS_PERSECOND_URL=a:1,b:2" + redis, want: values("redis_per_second.mode", "cluster", "redis_per_second.addrs", "a:1,b:2")},
	{of: "REDIS_PERSECOND_URL", env: "REDIS_PERSECOND=true REDIS_PERSECOND_URL=/run/fast.sock" + redis, want: values("redis_per_second.url", "unix:///run/fast.sock")},
	{of: "REDIS_PERSECOND_URL", env: "REDIS_PERSECOND_URL=/run/fast.sock" + redis, want: values("redis_per_second.url", unset), notice: "REDIS_PERSECOND is true"},
	{of: "REDIS_PERSECOND_URL", env: "REDIS_PERSECOND=true REDIS_PERSECOND_URL=/run/fast.sock WEIR_REDIS_PER_SECOND_URL=redis://x:1" + redis, want: values("redis_per_second.url", unset), notice: "takes its place"},
	{of: "REDIS_PERSECOND_AUTH", env: "REDIS_PERSECOND=true REDIS_PERSECOND_URL=/run/fast.sock REDIS_PERSECOND_AUTH=sesame" + redis, want: values("redis_per_second.password", "sesame", "redis.password", unset)},
	{of: "REDIS_PERSECOND_SENTINEL_AUTH", env: "REDIS_PERSECOND=true REDIS_PERSECOND_TYPE=SENTINEL REDIS_PERSECOND_URL=m,a:1 REDIS_PERSECOND_SENTINEL_AUTH=sesame" + redis, want: values("redis_per_second.sentinel_password", "sesame")},
	{of: "REDIS_PERSECOND_POOL_SIZE", env: "REDIS_PERSECOND=true REDIS_PERSECOND_URL=/s REDIS_PERSECOND_POOL_SIZE=5" + redis, want: values("redis_per_second.pool_size", "5")},
	{of: "REDIS_PERSECOND_TIMEOUT", env: "REDIS_PERSECOND=true REDIS_PERSECOND_URL=/s REDIS_PERSECOND_TIMEOUT=20ms" + redis, want: values("redis_per_second.timeout_ms", "20")},
	{of: "REDIS_PERSECOND_TIMEOUT", env: "REDIS_PERSECOND=true REDIS_PERSECOND_URL=/s REDIS_PERSECOND_TIMEOUT=1s" + redis, notice: "WEIR_REDIS_PER_SECOND_TIMEOUT_MS"},
	{of: "REDIS_PERSECOND_TLS", env: "REDIS_PERSECOND=true REDIS_PERSECOND_URL=/s REDIS_PERSECOND_TLS=true REDIS_TLS_CACERT=/ca" + redis, want: values("redis_per_second.tls.enabled", "true", "redis_per_second.tls.ca_file", "/ca", "redis.tls.ca_file", unset)},
	{of: "REDIS_PERSECOND_PIPELINE_WINDOW", env: "REDIS_PERSECOND_PIPELINE_WINDOW=1ms", notice: "has no counterpart"},
	{of: "REDIS_PERSECOND_PIPELINE_LIMIT", env: "REDIS_PERSECOND_PIPELINE_LIMIT=1", notice: "has no counterpart"},
	{of: "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", env: "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR=ERROR", notice: "has no counterpart"},
	{of: "REDIS_PERSECOND_STARTUP_*", env: "REDIS_PERSECOND_STARTUP_TIMEOUT=1s", notice: "does not wait for Redis"},

	{of: "EXPIRATION_JITTER_MAX_SECONDS", env: redis, want: values("ratelimit.key_expiry_jitter", "5m0s", "ratelimit.key_format", "envoyproxy")},
	{of: "EXPIRATION_JITTER_MAX_SECONDS", env: "EXPIRATION_JITTER_MAX_SECONDS=0", want: values("ratelimit.key_expiry_jitter", "0s")},
	{of: "EXPIRATION_JITTER_MAX_SECONDS", env: "EXPIRATION_JITTER_MAX_SECONDS=-1", fault: "-1 is out of range"},
	{of: "EXPIRATION_JITTER_MAX_SECONDS", env: "EXPIRATION_JITTER_MAX_SECONDS=9223372036854775807", fault: "is out of range"},
	{of: "LOCAL_CACHE_SIZE_IN_BYTES", env: "LOCAL_CACHE_SIZE_IN_BYTES=1048576" + redis, want: values("redis.deny_cache", "8192")},
	{of: "LOCAL_CACHE_SIZE_IN_BYTES", env: "LOCAL_CACHE_SIZE_IN_BYTES=1" + redis, want: values("redis.deny_cache", "1")},
	{of: "LOCAL_CACHE_SIZE_IN_BYTES", env: "LOCAL_CACHE_SIZE_IN_BYTES=-1" + redis, fault: "-1 is no size"},
	{of: "LOCAL_CACHE_SIZE_IN_BYTES", env: "LOCAL_CACHE_SIZE_IN_BYTES=1024", want: values("redis.deny_cache", unset), notice: "counters are in this process's memory"},
	{of: "NEAR_LIMIT_RATIO", env: "NEAR_LIMIT_RATIO=0.5", want: values("ratelimit.near_limit_ratio", "0.5")},
	{of: "NEAR_LIMIT_RATIO", env: "NEAR_LIMIT_RATIO=2", fault: "out of range"},
	{of: "CACHE_KEY_PREFIX", env: "CACHE_KEY_PREFIX=edge:" + redis, want: values("ratelimit.shared_key_prefix", "edge:")},
	{of: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", env: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true", want: values("ratelimit.stop_at_limit", "true")},
	{of: "SHADOW_MODE", env: "SHADOW_MODE=true", want: values("ratelimit.shadow_mode", "true")},
	{of: "QUOTA_MODE", env: "QUOTA_MODE=true", want: values("ratelimit.quota_mode", "true")},

	{of: "LIMIT_RESPONSE_HEADERS_ENABLED", env: "LIMIT_RESPONSE_HEADERS_ENABLED=true", want: values("envoy.response_headers", "custom", "envoy.retry_after", "false")},
	{of: "LIMIT_LIMIT_HEADER", env: "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_LIMIT_HEADER=X-L", want: values("envoy.header_names.limit", "X-L")},
	{of: "LIMIT_LIMIT_HEADER", env: "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_LIMIT_HEADER=X:L", fault: `"X:L" is no header name`},
	{of: "LIMIT_RESET_HEADER", env: "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=Retry-After", fault: "has another meaning"},
	{of: "LIMIT_RESPONSE_HEADERS_ENABLED", env: "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_LIMIT_HEADER=X LIMIT_RESET_HEADER=x", fault: "is named twice"},
	{of: "LIMIT_LIMIT_HEADER", env: "LIMIT_LIMIT_HEADER=X-L", want: values("envoy.header_names.limit", unset), notice: "LIMIT_RESPONSE_HEADERS_ENABLED is true"},
	{of: "LIMIT_REMAINING_HEADER", env: "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_REMAINING_HEADER=X-R", want: values("envoy.header_names.remaining", "X-R")},
	{of: "LIMIT_RESET_HEADER", env: "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=X-S", want: values("envoy.header_names.reset", "X-S")},
	{of: "RESPONSE_DYNAMIC_METADATA", env: "RESPONSE_DYNAMIC_METADATA=true", want: values("envoy.request_metadata", "true")},

	{of: "DISABLE_STATS", env: "DISABLE_STATS=true USE_PROMETHEUS=true", want: values("statsd.address", unset, "metrics.address", unset)},
	{of: "USE_STATSD", env: "", want: values("statsd.address", "tcp://localhost:8125", "statsd.dialect", unset)},
	{of: "USE_STATSD", env: "USE_STATSD=false", want: values("statsd.address", unset)},
	{of: "USE_STATSD", env: "USE_STATSD=true USE_DOG_STATSD=true", fault: "statistics go one way"},
	{of: "USE_DOG_STATSD", env: "USE_DOG_STATSD=true", want: values("statsd.address", "udp://localhost:8125", "statsd.dialect", "dogstatsd")},
	{of: "STATSD_HOST", env: "STATSD_HOST=::1", want: values("statsd.address", "tcp://[::1]:8125")},
	{of: "STATSD_PORT", env: "STATSD_PORT=9125", want: values("statsd.address", "tcp://localhost:9125")},
	{of: "STATSD_PORT", env: "USE_STATSD=false STATSD_PORT=9125", notice: "USE_STATSD or USE_DOG_STATSD is true"},
	{of: "EXTRA_TAGS", env: "EXTRA_TAGS=region:eu,tier:web", want: values("statsd.tags", "region:eu,tier:web")},
	{of: "EXTRA_TAGS", env: "EXTRA_TAGS=region", fault: `"region" is no list of NAME:VALUE`},
	{of: "STATS_FLUSH_INTERVAL", env: "STATS_FLUSH_INTERVAL=1s", want: values("statsd.flush_interval", "1s")},
	{of: "STATS_FLUSH_INTERVAL", env: "STATS_FLUSH_INTERVAL=0s", fault: "out of range"},
	{
		of:   "USE_DOG_STATSD_MOGRIFIERS",
		env:  "USE_DOG_STATSD=true\nUSE_DOG_STATSD_MOGRIFIERS=HITS\nDOG_STATSD_MOGRIFIER_HITS_PATTERN=^ratelimit\\.(.*)\\.(.*)$\nDOG_STATSD_MOGRIFIER_HITS_NAME=ratelimit.$2\nDOG_STATSD_MOGRIFIER_HITS_TAGS=domain:$1,kind:hits",
		want: values("statsd.mogrifiers", `^ratelimit\.(.*)\.(.*)$ => ratelimit.$2 domain:$1,kind:hits`),
	},
	{of: "USE_DOG_STATSD_MOGRIFIERS", env: "USE_DOG_STATSD_MOGRIFIERS=HITS", notice: "USE_DOG_STATSD is true"},
	{of: "DOG_STATSD_MOGRIFIER_*", env: "USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=HITS DOG_STATSD_MOGRIFIER_HITS_PATTERN=( DOG_STATSD_MOGRIFIER_HITS_NAME=x", fault: "missing closing )"},
	{of: "DOG_STATSD_MOGRIFIER_*", env: "USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=HITS DOG_STATSD_MOGRIFIER_HITS_PATTERN=x", fault: "is no name of a statistic"},
	{of: "DOG_STATSD_MOGRIFIER_*", env: "USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=HITS DOG_STATSD_MOGRIFIER_HITS_NAME=x", fault: "is no pattern"},
	{of: "DOG_STATSD_MOGRIFIER_*", env: "USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=HITS DOG_STATSD_MOGRIFIERS_HITS_NAME=x DOG_STATSD_MOGRIFIERS_HITS_PATTERN=y", want: values("statsd.mogrifiers", "y => x")},
	{of: "USE_PROMETHEUS", env: "USE_PROMETHEUS=true", want: values("metrics.envoyproxy_names", "true", "metrics.address", ":9090", "statsd.address", unset)},
	{of: "PROMETHEUS_ADDR", env: "USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001", want: values("metrics.address", ":19001")},
	{of: "PROMETHEUS_ADDR", env: "USE_PROMETHEUS=true PROMETHEUS_ADDR=19001", fault: "is no address"},
	{of: "PROMETHEUS_PATH", env: "USE_PROMETHEUS=true PROMETHEUS_PATH=/m", want: values("metrics.path", "/m")},
	{of: "PROMETHEUS_MAPPER_YAML", env: "USE_PROMETHEUS=true PROMETHEUS_MAPPER_YAML=/etc/conf.yaml", want: values("metrics.mapper_file", "/etc/conf.yaml")},

	{of: "TRACING_ENABLED", env: "TRACING_ENABLED=true", want: values("tracing.enabled", "true", "tracing.service_name", "RateLimit")},
	{of: "TRACING_EXPORTER_PROTOCOL", env: "TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=grpc", want: values("tracing.protocol", "grpc")},
	{of: "TRACING_EXPORTER_PROTOCOL", env: "TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=zipkin", fault: `unknown value "zipkin": write http or grpc`},
	{of: "TRACING_SERVICE_NAME", env: "TRACING_ENABLED=true TRACING_SERVICE_NAME=edge", want: values("tracing.service_name", "edge")},
	{of: "TRACING_SERVICE_NAMESPACE", env: "TRACING_ENABLED=true TRACING_SERVICE_NAMESPACE=ns", want: values("tracing.service_namespace", "ns")},
	{of: "TRACING_SERVICE_INSTANCE_ID", env: "TRACING_ENABLED=true TRACING_SERVICE_INSTANCE_ID=7", want: values("tracing.service_instance_id", "7")},
	{of: "TRACING_SAMPLING_RATE", env: "TRACING_ENABLED=true TRACING_SAMPLING_RATE=0.1", want: values("tracing.sampling_rate", "0.1")},
	{of: "TRACING_SAMPLING_RATE", env: "TRACING_SAMPLING_RATE=0.1", want: values("tracing.sampling_rate", unset), notice: "TRACING_ENABLED is true"},

	{of: "MEMCACHE_*", env: "MEMCACHE_HOST_PORT=memcache:11211", notice: "never in memcache"},
}

func values(pairs ...string) map[string]string {
	all := make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

func (c *translation) environ() []string {
	if strings.Contains(c.env, "\n") {
		return strings.Split(c.env, "\n")
	}
	var environ []string
	for variable := range strings.FieldsSeq(c.env) {
		environ = append(environ, variable)
	}
	return environ
}

func TestTranslate(t *testing.T) {
	for _, c := range cases {
		t.Run(c.of+"/"+c.env, func(t *testing.T) {
			translated, err := dropin.Translate(c.environ(), dropin.Options{})
			var loaded *config.Config
			if err == nil {
				loaded, err = config.Load(config.Source{Base: translated.Settings, Environ: c.environ()})
			}
			if c.fault != "" {
				checkFault(t, &c, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, setting := range translated.Settings {
				got[setting.Setting] = setting.Value + strings.Join(setting.List, ",")
			}
			for setting, want := range c.want {
				value, ok := got[setting]
				if !ok {
					value = unset
				}
				if value != want {
					t.Errorf("%s is %q, want %q", setting, value, want)
				}
			}
			told := ""
			for _, notice := range translated.Notices {
				if names(c.of, notice.Variable) {
					told += notice.Text
				}
			}
			if c.notice == "" && told != "" || !strings.Contains(told, c.notice) {
				t.Errorf("%s is told to be %q, want %q", c.of, told, c.notice)
			}
			checkWritten(t, &c, translated.Settings)
			if loaded.Server.GRPCPort != -1 || loaded.Database.Path != "" || !loaded.Server.EnvoyproxyEndpoints || loaded.Rules.SafeDefault {
				t.Errorf("it is not the mode: %+v, %+v", loaded.Server, loaded.Database)
			}
		})
	}
}

// checkWritten checks that what 'weir migrate' writes is a configuration that 'weir serve' takes.
func checkWritten(t *testing.T, c *translation, settings []config.Assignment) {
	t.Helper()
	text, _, err := config.Write(settings)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(config.Source{File: file, Environ: c.environ()}); err != nil {
		t.Errorf("it is written as\n%s\nwhich is refused: %v", text, err)
	}
}

func checkFault(t *testing.T, c *translation, err error) {
	t.Helper()
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("the error is %v, want problems", err)
	}
	for _, problem := range problems {
		if names(c.of, problem.Where) && strings.Contains(problem.Error(), c.fault) {
			return
		}
	}
	t.Errorf("the error is %q, want one of %s with %q", err, c.of, c.fault)
}

// names tells whether a variable of the table, which may end in a *, has this name.
func names(of, name string) bool {
	prefix, several := strings.CutSuffix(of, "*")
	return of == name || several && (strings.HasPrefix(name, prefix) || strings.HasPrefix(name, "DOG_STATSD_MOGRIFIERS_"))
}

func TestEveryVariableHasACase(t *testing.T) {
	for _, variable := range dropin.Variables() {
		if !slices.ContainsFunc(cases, func(c translation) bool { return c.of == variable.Name }) {
			t.Errorf("%s has no case", variable.Name)
		}
		if variable.Doc == "" {
			t.Errorf("%s has no documentation", variable.Name)
		}
	}
	for _, c := range cases {
		if !slices.ContainsFunc(dropin.Variables(), func(v dropin.Variable) bool { return v.Name == c.of }) {
			t.Errorf("%s is in a case and not in the table", c.of)
		}
	}
}

// Every value that cannot be is told at once, with its variable.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := dropin.Translate([]string{"PORT=x", "BACKEND_TYPE=memcache", "LOG_LEVEL=loud", "REDIS_TLS=perhaps"}, dropin.Options{})
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("the error is %v", err)
	}
	var where []string
	for _, problem := range problems {
		where = append(where, problem.Where)
	}
	slices.Sort(where)
	if want := []string{"BACKEND_TYPE", "LOG_LEVEL", "PORT", "REDIS_TLS"}; !slices.Equal(where, want) {
		t.Errorf("problems of %v, want %v", where, want)
	}
}

func TestWeirVariablesWin(t *testing.T) {
	environ := []string{"PORT=9080", "LOG_LEVEL=debug", "WEIR_SERVER_PORT=9999", "WEIR_SERVER_GRPC_PORT=50051", "WEIR_DATABASE_PATH=/tmp/x.db"}
	translated, err := dropin.Translate(environ, dropin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Source{Base: translated.Settings, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%d %d %s %s", loaded.Server.Port, loaded.Server.GRPCPort, loaded.Database.Path, loaded.Log.Level)
	if want := "9999 50051 /tmp/x.db debug"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Messages hold no password, wherever in the environment it stands.
func TestSecretsAreNotTold(t *testing.T) {
	for _, env := range []string{
		"REDIS_URL=redis://ann:sesame@redis:port REDIS_AUTH=sesame",
		"REDIS_URL=https://ann:sesame@redis REDIS_POOL_SIZE=0",
		"REDIS_TYPE=SENTINEL REDIS_URL=m,redis://ann:sesame@a:1",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=grpc-x:sesame",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=sesame",
		"REDIS_AUTH=sesame REDIS_SENTINEL_AUTH=sesame REDIS_POOL_SIZE=x",
		"REDIS_URL=ann:sesame@redis",
	} {
		environ := strings.Fields(env)
		translated, err := dropin.Translate(environ, dropin.Options{})
		if err == nil {
			_, err = config.Load(config.Source{Base: translated.Settings})
			for _, notice := range translated.Notices {
				if strings.Contains(notice.Text, "sesame") {
					t.Errorf("%s: %s", env, notice.Text)
				}
			}
		}
		if err != nil && strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", env, err)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	options := dropin.Options{Readable: func(path string) error { return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist} }}
	_, err := dropin.Translate(strings.Fields(tls), options)
	if err == nil || !strings.Contains(err.Error(), `GRPC_SERVER_TLS_CERT: "/certs/tls.crt" cannot be read: file does not exist: mount the file there`) {
		t.Errorf("the error is %v", err)
	}
}

// Without REDIS_URL the default of envoyproxy/ratelimit counts if something is there.
func TestDefaultSocket(t *testing.T) {
	translated, err := dropin.Translate(nil, dropin.Options{Exists: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(translated.Settings, func(s config.Assignment) bool {
		return s.Setting == "redis.url" && s.Value == "unix:///var/run/nutcracker/ratelimit.sock"
	}) {
		t.Errorf("the socket is not used: %v", translated.Settings)
	}
}
