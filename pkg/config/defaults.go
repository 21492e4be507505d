package config

import "time"

// Defaults returns the settings of a server that was given none. config/weir.yaml says the same.
func Defaults() *Config {
	return &Config{
		App: App{Name: "ratelimit", Environment: "production"},
		Server: Server{
			Host:         "0.0.0.0",
			Port:         8080,
			GRPCPort:     50051,
			FastPort:     8081,
			DrainDelay:   3 * time.Second,
			DrainTimeout: 20 * time.Second,
			Pprof:        true,
			DebugPort:    6070,
			HTTP: HTTP{
				ReadHeaderTimeout: 5 * time.Second,
				ReadTimeout:       30 * time.Second,
				WriteTimeout:      time.Minute,
				IdleTimeout:       2 * time.Minute,
				MaxHeaderBytes:    64 << 10,
				MaxBodyBytes:      1 << 20,
			},
			GRPC: GRPC{
				MaxMessageBytes:       4 << 20,
				MaxConcurrentStreams:  1 << 16,
				StreamWorkers:         64,
				KeepaliveTime:         time.Minute,
				KeepaliveTimeout:      20 * time.Second,
				KeepaliveMinTime:      5 * time.Second,
				MaxConnectionAge:      5 * time.Minute,
				MaxConnectionAgeGrace: 30 * time.Second,
			},
			Fast: Fast{Enabled: true, MaxConnections: 16 << 10, MaxMessageBytes: 1 << 20},
		},
		TLS: TLS{HTTP: true, ReloadCheckEvery: 5 * time.Second},
		Rules: Rules{Paths: []string{"config/rules"}, DefaultDomain: "k1s0", SafeDefault: true, Debounce: 100 * time.Millisecond, XDS: XDS{
			NodeID: "envoy-ratelimit", ConnectRetry: time.Second,
			BackoffInitial: 500 * time.Millisecond, BackoffMax: 30 * time.Second, BackoffFactor: 2, BackoffJitter: true,
			MaxMessageBytes: 32 << 20,
		}},
		RateLimit: RateLimit{FailOpen: true, DefaultLimit: 100, DefaultWindowSeconds: 60, KeyPrefix: "ratelimit", KeyFormat: KeysOfWeir, NearLimitRatio: 0.8, IdempotencyTTL: 5 * time.Minute},
		Memory:    Memory{MaxKeys: 1_000_000},
		Runtime:   Runtime{GOGC: 400},
		Redis:     Redis{PoolSize: 20, TimeoutMS: 100, DenyCache: 100_000, Mode: RedisSingle},
		PerSecond: Redis{PoolSize: 20, TimeoutMS: 100, Mode: RedisSingle},
		Database:  Database{Path: "data/weir.db", Port: 5432, SSLMode: "prefer", MaxOpenConns: 25, MaxIdleConns: 5, ConnMaxLifetime: 5 * time.Minute},
		Auth:      Auth{OIDC: OIDC{RolesClaim: "realm_access.roles", Refresh: 10 * time.Minute, Interval: 10 * time.Second}},
		Failure: Failure{
			FallbackFraction: 0.5,
			LocalMaxKeys:     100_000,
			Breaker:          Breaker{Failures: 5, ProbeInterval: 250 * time.Millisecond},
		},
		Envoy: Envoy{
			HeaderNames: HeaderNames{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
			RetryAfter:  true,
		},
		Log:     Log{Level: "info", Format: LogText, Identifiers: IdentifiersHash},
		Metrics: Metrics{MaxValues: 100, MaxRules: 10_000, Path: "/metrics"},
		Statsd:  Statsd{Dialect: DialectStatsd, FlushInterval: 10 * time.Second},
		Tracing: Tracing{Protocol: TracingHTTP, ServiceName: "weir", SamplingRate: 1},
	}
}
