package dropin

// always are the settings of the mode that no variable says: weir's own may say otherwise.
var always = []struct{ setting, value string }{
	{"server.envoyproxy_endpoints", "true"},
	{"server.grpc_port", "-1"},      // two replicas on one machine would both want weir's own gRPC port
	{"database.path", ""},           // nobody has asked for rules made through an API
	{"rules.safe_default", "false"}, // without rules requests pass
	{"ratelimit.fail_open", "true"}, // while Redis is away too, within weir's deadline
	{"ratelimit.key_format", "envoyproxy"},
	{"metrics.max_values", "10000"}, // it knows no bound, and people rely on names that hold values
}

var (
	byXDS      = &condition{func(m *mapping) bool { return m.text("CONFIG_TYPE") == xdsConfig }, "CONFIG_TYPE is " + xdsConfig}
	byFile     = &condition{func(m *mapping) bool { return m.text("CONFIG_TYPE") == fileConfig }, "CONFIG_TYPE is " + fileConfig}
	xdsTLS     = &condition{func(m *mapping) bool { return byXDS.holds(m) && m.bool("CONFIG_GRPC_XDS_SERVER_USE_TLS") }, "CONFIG_GRPC_XDS_SERVER_USE_TLS is true"}
	grpcTLS    = &condition{func(m *mapping) bool { return m.bool("GRPC_SERVER_USE_TLS") }, "GRPC_SERVER_USE_TLS is true"}
	headers    = &condition{func(m *mapping) bool { return m.bool("LIMIT_RESPONSE_HEADERS_ENABLED") }, "LIMIT_RESPONSE_HEADERS_ENABLED is true"}
	statistics = &condition{func(m *mapping) bool { return !m.bool("DISABLE_STATS") }, "DISABLE_STATS is false"}
	sends      = &condition{(*mapping).sendsStatistics, "USE_STATSD or USE_DOG_STATSD is true, and DISABLE_STATS is not"}
	dogstatsd  = &condition{(*mapping).dogStatsD, "USE_DOG_STATSD is true, and DISABLE_STATS is not"}
	prometheus = &condition{(*mapping).prometheus, "USE_PROMETHEUS is true, and DISABLE_STATS is not"}
	tracing    = &condition{func(m *mapping) bool { return m.bool("TRACING_ENABLED") }, "TRACING_ENABLED is true"}
	perSecond  = &condition{func(m *mapping) bool { return m.bool("REDIS_PERSECOND") }, "REDIS_PERSECOND is true"}
	anyRedis   = &condition{(*mapping).anyRedisTLS, "REDIS_TLS or REDIS_PERSECOND_TLS is true"}
)

const (
	batching   = "has no counterpart: calls to Redis that come together go together, without waiting for more"
	noMemcache = "has no counterpart: counters are in Redis or in this process's memory, never in memcache"
	waiting    = "has no counterpart: a call that finds no free connection waits for one, within the deadline"
	starting   = "has no counterpart: weir does not wait for Redis when it starts, and uses it as soon as it answers"
)

// table is every variable of envoyproxy/ratelimit, and GRPC_SERVER_TLS_CA_CERT, which Envoy Gateway sets.
var table = []Variable{
	{Name: "HOST", Default: "0.0.0.0", setting: "server.host", Doc: "`server.host`, of the HTTP port"},
	{Name: "PORT", Kind: Integer, Default: "8080", setting: "server.port", Doc: "`server.port`: `/healthcheck`, `/json`, and what weir has there: `/readyz`, `/metrics`, the API"},
	{Name: "DEBUG_HOST", Default: "0.0.0.0", to: host("server.debug_host"), Doc: "`server.debug_host`"},
	{Name: "DEBUG_PORT", Kind: Integer, Default: "6070", setting: "server.debug_port", Doc: "`server.debug_port`: `/`, `/stats`, `/rlconfig`, `/debug/pprof/`"},

	{Name: "GRPC_HOST", Default: "0.0.0.0", to: host("server.grpc_host"), Doc: "`server.grpc_host`"},
	{Name: "GRPC_PORT", Kind: Integer, Default: "8081", setting: "server.fast_port", Doc: "`server.fast_port`: RateLimitService and health. weir's other gRPC port is off unless `WEIR_SERVER_GRPC_PORT` is set"},
	{Name: "GRPC_UDS", to: grpcSocket, Doc: "`server.fast.socket`, instead of `GRPC_PORT`; without TLS"},
	{Name: "GRPC_MAX_CONNECTION_AGE", Kind: Duration, Default: "24h", to: atMost("server.grpc.max_connection_age", maxAge), Doc: "`server.grpc.max_connection_age`, at most 24h"},
	{Name: "GRPC_MAX_CONNECTION_AGE_GRACE", Kind: Duration, Default: "1h", to: atMost("server.grpc.max_connection_age_grace", maxGrace), Doc: "`server.grpc.max_connection_age_grace`, at most 1h"},
	{Name: "GRPC_SERVER_USE_TLS", Kind: Bool, Default: "false", to: serverTLS, Doc: "`tls`, for gRPC alone; the files are read again when they change"},
	{Name: "GRPC_SERVER_TLS_CERT", needs: grpcTLS, with: "GRPC_SERVER_USE_TLS", Doc: "`tls.cert_file`"},
	{Name: "GRPC_SERVER_TLS_KEY", needs: grpcTLS, with: "GRPC_SERVER_USE_TLS", Doc: "`tls.key_file`"},
	{Name: "GRPC_CLIENT_TLS_CACERT", needs: grpcTLS, with: "GRPC_SERVER_USE_TLS", Doc: "`tls.client_ca_file`: clients must have a certificate of it"},
	{Name: "GRPC_SERVER_TLS_CA_CERT", needs: grpcTLS, with: "GRPC_SERVER_USE_TLS", Doc: "the same; Envoy Gateway sets it"},
	{Name: "GRPC_CLIENT_TLS_SAN", needs: grpcTLS, with: "GRPC_SERVER_USE_TLS", Doc: "`tls.client_names`"},

	{Name: "LOG_LEVEL", Default: "WARN", to: logLevel, Doc: "`log.level`; TRACE is debug, FATAL and PANIC are error"},
	{Name: "LOG_FORMAT", Default: "text", to: logFormat, Doc: "`log.format`; the names of JSON's fields are weir's"},

	{Name: "CONFIG_TYPE", Default: fileConfig, to: configType, Doc: "FILE: `rules.paths`; GRPC_XDS_SOTW: `rules.xds`"},
	{Name: "FORCE_START_WITHOUT_INITIAL_CONFIG", Kind: Bool, Default: "false", with: "CONFIG_TYPE", Doc: "false with xDS: `server.ready_needs: [first_rules]`. Files are read before weir serves, and weir serves without them too"},
	{Name: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Kind: Bool, Default: "false", to: healthyWithRules, Doc: "`server.ready_needs: [rules]`"},
	{Name: "MERGE_DOMAIN_CONFIG", Kind: Bool, Default: "false", setting: "rules.merge_domains", Doc: "`rules.merge_domains`"},
	{Name: "RUNTIME_ROOT", Default: "/srv/runtime_data/current", needs: byFile, to: runtimeFolder, Doc: "`rules.paths`: the `*.yaml` and `*.yml` files in ROOT/SUBDIRECTORY/APPDIRECTORY"},
	{Name: "RUNTIME_SUBDIRECTORY", needs: byFile, with: "RUNTIME_ROOT", Doc: "part of that path"},
	{Name: "RUNTIME_APPDIRECTORY", Default: "config", needs: byFile, with: "RUNTIME_ROOT", Doc: "part of that path"},
	{Name: "RUNTIME_WATCH_ROOT", Kind: Bool, Default: "true", needs: byFile, to: watchesBoth, Doc: "both are followed: a link anywhere on the path that is swapped, and files that change"},
	{Name: "RUNTIME_IGNOREDOTFILES", Kind: Bool, Default: "false", needs: byFile, to: dotFiles, Doc: "true is what weir does: names that begin with a dot are no rules"},

	{Name: "CONFIG_GRPC_XDS_SERVER_URL", Default: "localhost:18000", needs: byXDS, to: xdsServer, Doc: "`rules.xds.server`"},
	{Name: "CONFIG_GRPC_XDS_NODE_ID", Default: "default", needs: byXDS, to: assigned("rules.xds.node_id"), Doc: "`rules.xds.node_id`"},
	{Name: "CONFIG_GRPC_XDS_NODE_METADATA", needs: byXDS, to: xdsMetadata, Doc: "`rules.xds.node_metadata`"},
	{Name: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Kind: Map, needs: byXDS, to: xdsHeaders, secret: true, Doc: "`rules.xds.headers`"},
	{Name: "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Kind: Duration, Default: "3s", needs: byXDS, setting: "rules.xds.connect_retry", Doc: "`rules.xds.connect_retry` (1s if it is not set)"},
	{Name: "CONFIG_GRPC_XDS_SERVER_USE_TLS", Kind: Bool, Default: "false", needs: byXDS, setting: "rules.xds.tls.enabled", Doc: "`rules.xds.tls.enabled`"},
	{Name: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", needs: xdsTLS, to: path("rules.xds.tls.cert_file"), Doc: "`rules.xds.tls.cert_file`"},
	{Name: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", needs: xdsTLS, to: path("rules.xds.tls.key_file"), Doc: "`rules.xds.tls.key_file`"},
	{Name: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", needs: xdsTLS, to: path("rules.xds.tls.ca_file"), Doc: "`rules.xds.tls.ca_file`"},
	{Name: "CONFIG_GRPC_XDS_SERVER_TLS_SAN", needs: xdsTLS, setting: "rules.xds.tls.server_name", Doc: "`rules.xds.tls.server_name`"},
	{Name: "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Kind: Duration, Default: "10s", needs: byXDS, to: xdsBackoff, Doc: "`rules.xds.backoff_initial` (500ms if it is not set)"},
	{Name: "XDS_CLIENT_BACKOFF_MAX_INTERVAL", Kind: Duration, Default: "60s", needs: byXDS, with: "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Doc: "`rules.xds.backoff_max` (30s if it is not set)"},
	{Name: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Kind: Number, Default: "0.5", needs: byXDS, to: xdsFactor, Doc: "`rules.xds.backoff_factor`, at least 1 (2 if it is not set)"},
	{Name: "XDS_CLIENT_BACKOFF_JITTER", Kind: Bool, Default: "true", needs: byXDS, setting: "rules.xds.backoff_jitter", Doc: "`rules.xds.backoff_jitter`"},
	{Name: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Kind: Integer, needs: byXDS, to: xdsMessage, Doc: "`rules.xds.max_message_bytes` (16 MiB if it is not set, or 0)"},

	{Name: "BACKEND_TYPE", Default: "redis", to: backend, Doc: "redis; memcache is refused"},
	{Name: "REDIS_SOCKET_TYPE", Default: "unix", with: "REDIS_URL", Doc: "how REDIS_URL is read: tcp, unix, tls"},
	{Name: "REDIS_TYPE", Default: "SINGLE", with: "REDIS_URL", Doc: "`redis.mode`"},
	{Name: "REDIS_URL", Default: "/var/run/nutcracker/ratelimit.sock", to: mainRedis, secret: true, Doc: "`redis.url`, or `redis.addrs` (and `redis.master_name`). Not set, and nothing at its default: counters in memory"},
	{Name: "REDIS_AUTH", with: "REDIS_URL", secret: true, Doc: "`redis.username`, `redis.password`"},
	{Name: "REDIS_SENTINEL_AUTH", with: "REDIS_URL", secret: true, Doc: "`redis.sentinel_username`, `redis.sentinel_password`"},
	{Name: "REDIS_POOL_SIZE", Kind: Integer, Default: "10", with: "REDIS_URL", Doc: "`redis.pool_size` (20 if it is not set)"},
	{Name: "REDIS_TIMEOUT", Kind: Duration, Default: "10s", with: "REDIS_URL", Doc: "`redis.timeout_ms` if it is less than 100ms: callers never wait longer, unless `WEIR_REDIS_TIMEOUT_MS` says so"},
	{Name: "REDIS_TLS", Kind: Bool, Default: "false", with: "REDIS_URL", Doc: "`redis.tls.enabled`"},
	{Name: "REDIS_TLS_CLIENT_CERT", needs: anyRedis, with: "REDIS_URL", Doc: "`redis.tls.cert_file`, of both Redis"},
	{Name: "REDIS_TLS_CLIENT_KEY", needs: anyRedis, with: "REDIS_URL", Doc: "`redis.tls.key_file`, of both"},
	{Name: "REDIS_TLS_CACERT", needs: anyRedis, with: "REDIS_URL", Doc: "`redis.tls.ca_file`, of both"},
	{Name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Kind: Bool, Default: "false", needs: anyRedis, with: "REDIS_URL", Doc: "`redis.tls.skip_name_check`, of both"},
	{Name: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Kind: Bool, Default: "false", with: "REDIS_URL", Doc: "`server.ready_needs: [redis]`"},
	{Name: "REDIS_PIPELINE_WINDOW", Kind: Duration, Default: "0", instead: batching, Doc: batching},
	{Name: "REDIS_PIPELINE_LIMIT", Kind: Integer, Default: "0", instead: batching, Doc: batching},
	{Name: "REDIS_CLUSTER_PIPELINE_PARALLELISM", instead: batching, Doc: batching},
	{Name: "REDIS_POOL_ON_EMPTY_BEHAVIOR", Default: "WAIT", instead: waiting, Doc: waiting},
	{Name: "REDIS_STARTUP_*", instead: starting, Doc: starting},
	{Name: "REDIS_PERSECOND", Kind: Bool, Default: "false", with: "REDIS_PERSECOND_URL", Doc: "`redis_per_second`: windows of one second are counted there"},
	{Name: "REDIS_PERSECOND_SOCKET_TYPE", Default: "unix", needs: perSecond, with: "REDIS_PERSECOND_URL", Doc: "how REDIS_PERSECOND_URL is read"},
	{Name: "REDIS_PERSECOND_TYPE", Default: "SINGLE", needs: perSecond, with: "REDIS_PERSECOND_URL", Doc: "`redis_per_second.mode`"},
	{Name: "REDIS_PERSECOND_URL", Default: "/var/run/nutcracker/ratelimitpersecond.sock", needs: perSecond, to: perSecondRedis, secret: true, Doc: "`redis_per_second.url`, or `addrs`"},
	{Name: "REDIS_PERSECOND_AUTH", needs: perSecond, with: "REDIS_PERSECOND_URL", secret: true, Doc: "`redis_per_second.username`, `redis_per_second.password`"},
	{Name: "REDIS_PERSECOND_SENTINEL_AUTH", needs: perSecond, with: "REDIS_PERSECOND_URL", secret: true, Doc: "`redis_per_second.sentinel_username`, `redis_per_second.sentinel_password`"},
	{Name: "REDIS_PERSECOND_POOL_SIZE", Kind: Integer, Default: "10", needs: perSecond, with: "REDIS_PERSECOND_URL", Doc: "`redis_per_second.pool_size`"},
	{Name: "REDIS_PERSECOND_TIMEOUT", Kind: Duration, Default: "10s", needs: perSecond, with: "REDIS_PERSECOND_URL", Doc: "as REDIS_TIMEOUT"},
	{Name: "REDIS_PERSECOND_TLS", Kind: Bool, Default: "false", needs: perSecond, with: "REDIS_PERSECOND_URL", Doc: "`redis_per_second.tls.enabled`"},
	{Name: "REDIS_PERSECOND_PIPELINE_WINDOW", Kind: Duration, Default: "0", instead: batching, Doc: batching},
	{Name: "REDIS_PERSECOND_PIPELINE_LIMIT", Kind: Integer, Default: "0", instead: batching, Doc: batching},
	{Name: "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Default: "WAIT", instead: waiting, Doc: waiting},
	{Name: "REDIS_PERSECOND_STARTUP_*", instead: starting, Doc: starting},

	{Name: "EXPIRATION_JITTER_MAX_SECONDS", Kind: Integer, Default: "300", to: jitter, Doc: "`ratelimit.key_expiry_jitter`"},
	{Name: "LOCAL_CACHE_SIZE_IN_BYTES", Kind: Integer, Default: "0", to: localCache, Doc: "`redis.deny_cache`, an entry for each 128 bytes"},
	{Name: "NEAR_LIMIT_RATIO", Kind: Number, Default: "0.8", setting: "ratelimit.near_limit_ratio", Doc: "`ratelimit.near_limit_ratio`"},
	{Name: "CACHE_KEY_PREFIX", setting: "ratelimit.shared_key_prefix", Doc: "`ratelimit.shared_key_prefix`"},
	{Name: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Kind: Bool, Default: "false", setting: "ratelimit.stop_at_limit", Doc: "`ratelimit.stop_at_limit`"},
	{Name: "SHADOW_MODE", Kind: Bool, Default: "false", setting: "ratelimit.shadow_mode", Doc: "`ratelimit.shadow_mode`"},
	{Name: "QUOTA_MODE", Kind: Bool, Default: "false", setting: "ratelimit.quota_mode", Doc: "`ratelimit.quota_mode`"},

	{Name: "LIMIT_RESPONSE_HEADERS_ENABLED", Kind: Bool, Default: "false", to: replyHeaders, Doc: "`envoy.response_headers: [custom]`, `envoy.retry_after: false`"},
	{Name: "LIMIT_LIMIT_HEADER", Default: "RateLimit-Limit", needs: headers, setting: "envoy.header_names.limit", Doc: "`envoy.header_names.limit`"},
	{Name: "LIMIT_REMAINING_HEADER", Default: "RateLimit-Remaining", needs: headers, setting: "envoy.header_names.remaining", Doc: "`envoy.header_names.remaining`"},
	{Name: "LIMIT_RESET_HEADER", Default: "RateLimit-Reset", needs: headers, setting: "envoy.header_names.reset", Doc: "`envoy.header_names.reset`"},
	{Name: "RESPONSE_DYNAMIC_METADATA", Kind: Bool, Default: "false", setting: "envoy.request_metadata", Doc: "`envoy.request_metadata`"},

	{Name: "DISABLE_STATS", Kind: Bool, Default: "false", with: "USE_STATSD", Doc: "nothing is sent, and Prometheus sees weir's own metrics alone"},
	{Name: "USE_STATSD", Kind: Bool, Default: "true", needs: statistics, to: sendStatistics, Doc: "`statsd.address`, over TCP; if it is not set, only where neither USE_DOG_STATSD nor USE_PROMETHEUS is true"},
	{Name: "USE_DOG_STATSD", Kind: Bool, Default: "false", needs: statistics, with: "USE_STATSD", Doc: "`statsd.address`, over UDP, and `statsd.dialect: dogstatsd`"},
	{Name: "STATSD_HOST", Default: "localhost", needs: sends, with: "USE_STATSD", Doc: "part of `statsd.address`"},
	{Name: "STATSD_PORT", Kind: Integer, Default: "8125", needs: sends, with: "USE_STATSD", Doc: "part of `statsd.address`"},
	{Name: "EXTRA_TAGS", Kind: Map, needs: sends, to: extraTags, Doc: "`statsd.tags`"},
	{Name: "STATS_FLUSH_INTERVAL", Kind: Duration, Default: "10s", needs: sends, setting: "statsd.flush_interval", Doc: "`statsd.flush_interval`"},
	{Name: "USE_DOG_STATSD_MOGRIFIERS", Kind: List, needs: dogstatsd, to: mogrifiers, Doc: "`statsd.mogrifiers`"},
	{Name: "DOG_STATSD_MOGRIFIER_*", needs: dogstatsd, with: "USE_DOG_STATSD_MOGRIFIERS", Doc: "`_NAME_PATTERN`, `_NAME_NAME`, `_NAME_TAGS` of each"},
	{Name: "USE_PROMETHEUS", Kind: Bool, Default: "false", needs: statistics, to: showStatistics, Doc: "`metrics.envoyproxy_names`, on a listener of its own; `/metrics` of the HTTP port has them too"},
	{Name: "PROMETHEUS_ADDR", Default: ":9090", needs: prometheus, with: "USE_PROMETHEUS", Doc: "`metrics.address`"},
	{Name: "PROMETHEUS_PATH", Default: "/metrics", needs: prometheus, setting: "metrics.path", Doc: "`metrics.path`"},
	{Name: "PROMETHEUS_MAPPER_YAML", needs: prometheus, setting: "metrics.mapper_file", Doc: "`metrics.mapper_file`; one that is not there is taken for none"},

	{Name: "TRACING_ENABLED", Kind: Bool, Default: "false", setting: "tracing.enabled", Doc: "`tracing.enabled`"},
	{Name: "TRACING_EXPORTER_PROTOCOL", Default: "http", needs: tracing, setting: "tracing.protocol", Doc: "`tracing.protocol`"},
	{Name: "TRACING_SERVICE_NAME", Default: "RateLimit", needs: tracing, to: assigned("tracing.service_name"), Doc: "`tracing.service_name`"},
	{Name: "TRACING_SERVICE_NAMESPACE", needs: tracing, setting: "tracing.service_namespace", Doc: "`tracing.service_namespace`"},
	{Name: "TRACING_SERVICE_INSTANCE_ID", needs: tracing, setting: "tracing.service_instance_id", Doc: "`tracing.service_instance_id`"},
	{Name: "TRACING_SAMPLING_RATE", Kind: Number, Default: "1", needs: tracing, setting: "tracing.sampling_rate", Doc: "`tracing.sampling_rate`"},

	{Name: "MEMCACHE_*", instead: noMemcache, Doc: noMemcache},
}
