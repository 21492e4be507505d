package config

import (
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Config is the settings of one server. Load makes one that is complete and valid; Defaults one without any input.
type Config struct {
	App       App       `yaml:"app"`
	Server    Server    `yaml:"server"`
	TLS       TLS       `yaml:"tls"`
	Rules     Rules     `yaml:"rules"`
	RateLimit RateLimit `yaml:"ratelimit"`
	Memory    Memory    `yaml:"memory"`
	Runtime   Runtime   `yaml:"runtime"`
	Redis     Redis     `yaml:"redis"`
	PerSecond Redis     `yaml:"redis_per_second"`
	Database  Database  `yaml:"database"`
	Auth      Auth      `yaml:"auth"`
	Failure   Failure   `yaml:"failure"`
	Envoy     Envoy     `yaml:"envoy"`
	Log       Log       `yaml:"log"`
	Metrics   Metrics   `yaml:"metrics"`
	Statsd    Statsd    `yaml:"statsd"`
	Tracing   Tracing   `yaml:"tracing"`
}

// App says what the process calls itself.
type App struct {
	Name        string `yaml:"name" doc:"Name of this service in logs"`
	Version     string `yaml:"version" doc:"Version of this deployment in logs; empty: the binary's"`
	Environment string `yaml:"environment" doc:"Where it runs, in logs"`
}

// Server is where and how the process serves.
type Server struct {
	Host         string        `yaml:"host" doc:"Address to listen on, for gRPC and HTTP"`
	Port         int           `yaml:"port" min:"0" max:"65535" doc:"HTTP port: health, metrics, API; 0 takes a free one"`
	GRPCHost     string        `yaml:"grpc_host" doc:"Address to listen on for gRPC; empty: server.host"`
	GRPCPort     int           `yaml:"grpc_port" min:"-1" max:"65535" doc:"gRPC port: Envoy's RateLimitService, the k1s0 API, health; 0 takes a free one, -1 none"`
	FastPort     int           `yaml:"fast_port" min:"0" max:"65535" doc:"gRPC port for Envoy: RateLimitService and health alone, at a fraction of the cost; 0 takes a free one"`
	GRPCSocket   string        `yaml:"grpc_socket" doc:"Path of a unix socket that serves gRPC too, without TLS; empty: none"`
	DrainDelay   time.Duration `yaml:"drain_delay" min:"0s" max:"10m" doc:"After SIGTERM, how long to go on serving while health says NOT_SERVING, so that gateways look elsewhere"`
	DrainTimeout time.Duration `yaml:"drain_timeout" min:"0s" max:"1h" doc:"After the delay, how long calls under way may take before they are cut"`
	Pprof        bool          `yaml:"pprof" doc:"Serve /debug/pprof on the HTTP port, to clients on the loopback address alone"`
	ReadyNeeds   []string      `yaml:"ready_needs" oneof:"first_rules|rules|redis" doc:"What health waits for beside the process itself: first_rules (a valid set of rules has been loaded once), rules (there is one for some domain now), redis (it answers); without it a replica serves by the failure mode"`
	// EnvoyproxyEndpoints adds those of envoyproxy/ratelimit to what is there.
	EnvoyproxyEndpoints bool   `yaml:"envoyproxy_endpoints" doc:"Serve what envoyproxy/ratelimit does: /healthcheck and /json on the HTTP port, /stats, /rlconfig and /debug/pprof on the debug port, to everybody; gRPC health for the service ratelimit"`
	DebugHost           string `yaml:"debug_host" doc:"Address of the debug port; empty: server.host"`
	DebugPort           int    `yaml:"debug_port" min:"0" max:"65535" doc:"Port of /stats, /rlconfig and /debug/pprof, with server.envoyproxy_endpoints; 0 takes a free one"`
	HTTP                HTTP   `yaml:"http"`
	GRPC                GRPC   `yaml:"grpc"`
	Fast                Fast   `yaml:"fast"`
}

// The values of Server.ReadyNeeds.
const (
	NeedFirstRules = "first_rules"
	NeedRules      = "rules"
	NeedRedis      = "redis"
)

// HTTP bounds what one HTTP client may take.
type HTTP struct {
	ReadHeaderTimeout time.Duration `yaml:"read_header_timeout" min:"100ms" max:"10m" doc:"Time to send a request's header"`
	ReadTimeout       time.Duration `yaml:"read_timeout" min:"100ms" max:"1h" doc:"Time to send a whole request"`
	WriteTimeout      time.Duration `yaml:"write_timeout" min:"100ms" max:"1h" doc:"Time from a request's header to the end of its response; also the longest profile"`
	IdleTimeout       time.Duration `yaml:"idle_timeout" min:"100ms" max:"24h" doc:"How long a connection may wait for its next request"`
	MaxHeaderBytes    int           `yaml:"max_header_bytes" min:"4096" max:"16777216" doc:"Size of a request's header"`
	MaxBodyBytes      int           `yaml:"max_body_bytes" min:"1024" max:"67108864" doc:"Size of a request's body"`
}

// GRPC bounds what one gRPC client may take, and spreads connections over replicas.
type GRPC struct {
	MaxMessageBytes       int           `yaml:"max_message_bytes" min:"1024" max:"67108864" doc:"Size of a request"`
	MaxConcurrentStreams  int           `yaml:"max_concurrent_streams" min:"1" max:"4294967295" doc:"Calls under way on one connection; Envoy has one connection per worker"`
	StreamWorkers         int           `yaml:"stream_workers" min:"0" max:"65536" doc:"Goroutines that wait for calls, as many as calls are usually under way at once: they take turns, so that idle ones cost cache; a call that finds none gets one of its own, 0: all do"`
	KeepaliveTime         time.Duration `yaml:"keepalive_time" min:"1s" max:"24h" doc:"Idle time after which a client is asked whether it is alive"`
	KeepaliveTimeout      time.Duration `yaml:"keepalive_timeout" min:"100ms" max:"1h" doc:"Time to answer that, or the connection is closed"`
	KeepaliveMinTime      time.Duration `yaml:"keepalive_min_time" min:"0s" max:"1h" doc:"Least time between two pings of a client; one that pings more often is cut off"`
	MaxConnectionIdle     time.Duration `yaml:"max_connection_idle" min:"0s" max:"24h" doc:"Idle time after which a connection is closed; 0: never"`
	MaxConnectionAge      time.Duration `yaml:"max_connection_age" min:"0s" max:"24h" doc:"Age at which a connection is closed, give or take 10 %, so that new replicas get their share; 0: never"`
	MaxConnectionAgeGrace time.Duration `yaml:"max_connection_age_grace" min:"0s" max:"1h" doc:"Time for the calls on such a connection to end; 0: no limit"`
}

// Fast is the listener at FastPort. What GRPC says of streams, keepalive, idle time and age goes for it too.
type Fast struct {
	Enabled         bool   `yaml:"enabled" doc:"Listen on server.fast_port"`
	Socket          string `yaml:"socket" doc:"Path of a unix socket that serves the same, without TLS, whether or not fast.enabled is true; empty: none"`
	MaxConnections  int    `yaml:"max_connections" min:"1" max:"1000000" doc:"Connections open at once; those beyond are closed as they come"`
	MaxMessageBytes int    `yaml:"max_message_bytes" min:"1024" max:"16777216" doc:"Size of a request"`
}

// TLS protects the TCP listeners. It is on if CertFile is set.
type TLS struct {
	CertFile         string        `yaml:"cert_file" doc:"PEM file of the server's certificate chain; empty: no TLS"`
	KeyFile          string        `yaml:"key_file" doc:"PEM file of its key"`
	ClientCAFile     string        `yaml:"client_ca_file" doc:"PEM file of the CAs that gRPC clients' certificates must come from; empty: none is asked for"`
	ClientNames      []string      `yaml:"client_names" doc:"Names of which a client's certificate must have one (DNS, URI such as a SPIFFE ID, address, mail); empty: any"`
	HTTP             bool          `yaml:"http" doc:"Protect the HTTP port too"`
	HTTPClientCerts  bool          `yaml:"http_client_certs" doc:"Ask HTTP clients for certificates too; Kubernetes' probes and most scrapers have none"`
	ReloadCheckEvery time.Duration `yaml:"reload_check_every" min:"100ms" max:"1h" doc:"How often, at most, the files are looked at for changes"`
}

// Enabled reports whether the TCP listeners use TLS.
func (t *TLS) Enabled() bool { return t.CertFile != "" }

// Rules is where rules come from.
type Rules struct {
	Paths         []string      `yaml:"paths" doc:"Rule files and folders, relative to the working directory; with rules.xds.server the default is none"`
	MergeDomains  bool          `yaml:"merge_domains" doc:"Allow one domain in several files"`
	DefaultDomain string        `yaml:"default_domain" doc:"Domain of rules that name none, and of checks through the k1s0 API"`
	SafeDefault   bool          `yaml:"safe_default" doc:"Until there are valid rule files, and with no control plane, give every descriptor of every domain the limit ratelimit.default_limit; false: let requests pass"`
	Debounce      time.Duration `yaml:"debounce" min:"1ms" max:"1m" doc:"How long to gather changes of the files before they are loaded"`
	XDS           XDS           `yaml:"xds"`
}

// The values of RateLimit.KeyFormat.
const (
	KeysOfWeir       = "weir"
	KeysOfEnvoyproxy = "envoyproxy"
)

// RateLimit is how requests are counted.
type RateLimit struct {
	FailOpen             bool          `yaml:"fail_open" doc:"While the store cannot decide: true allows, false denies; failure.mode, if set, beats it"`
	DefaultLimit         int64         `yaml:"default_limit" min:"1" max:"1099511627776" doc:"Limit of checks through the k1s0 API that no rule matches, and of everything while no rules are loaded"`
	DefaultWindowSeconds int64         `yaml:"default_window_seconds" min:"1" max:"316224000" doc:"Window of that limit, in seconds"`
	ShadowMode           bool          `yaml:"shadow_mode" doc:"Count all requests, deny none"`
	QuotaMode            bool          `yaml:"quota_mode" doc:"Put all rules into quota mode: a request is denied only where all its limited descriptors are over"`
	KeyPrefix            string        `yaml:"key_prefix" doc:"First part of every counter's key"`
	KeyFormat            string        `yaml:"key_format" oneof:"weir|envoyproxy" doc:"envoyproxy counts every rate_limit, and overrides, under the Redis keys of envoyproxy/ratelimit, so that its replicas and weir's share one count"`
	SharedKeyPrefix      string        `yaml:"shared_key_prefix" doc:"First part of those keys"`
	KeyExpiryJitter      time.Duration `yaml:"key_expiry_jitter" min:"0s" max:"24h" doc:"How much longer than their window those keys live at most, at random"`
	StopAtLimit          bool          `yaml:"stop_at_limit" doc:"Do not count denied hits there; each counter by itself"`
	NearLimitRatio       float64       `yaml:"near_limit_ratio" min:"0.000001" max:"1" doc:"Part of a limit above which the statistics of envoyproxy/ratelimit count hits as near it"`
	IdempotencyTTL       time.Duration `yaml:"idempotency_ttl" min:"1s" max:"24h" doc:"How long a request ID is remembered, so that a retry is charged once"`
}

// EnvoyKeys reports whether counters are shared with envoyproxy/ratelimit.
func (r *RateLimit) EnvoyKeys() bool { return r.KeyFormat == KeysOfEnvoyproxy }

// Memory is the store in the process, used without Redis.
type Memory struct {
	MaxKeys int `yaml:"max_keys" min:"1" max:"1000000000" doc:"Counters held; above it the least recently used are forgotten"`
}

// Runtime is how the Go runtime works.
type Runtime struct {
	GOGC int `yaml:"gogc" min:"10" max:"10000" doc:"Percent by which the heap may grow before it is collected: more memory for less processor time, but never above GOMEMLIMIT (by default nine tenths of the container's or the machine's memory); the variable GOGC beats it"`
}

// Database holds the rules that are made through the API: Postgres if Host is set, else SQLite.
type Database struct {
	Path            string        `yaml:"path" doc:"SQLite file that holds the rules made through the API, where there is no Postgres; empty: none can be made"`
	Host            string        `yaml:"host" doc:"Postgres server that holds them, shared by all replicas; empty: none"`
	Port            int           `yaml:"port" min:"1" max:"65535" doc:"Its port"`
	Name            string        `yaml:"name" doc:"Name of the database"`
	User            string        `yaml:"user" doc:"User"`
	Password        Secret        `yaml:"password" doc:"Password"`
	PasswordFile    string        `yaml:"password_file" doc:"File that holds the password, read again for each connection"`
	SSLMode         string        `yaml:"ssl_mode" oneof:"disable|allow|prefer|require|verify-ca|verify-full" doc:"How connections are protected, in libpq's words"`
	SSLRootCert     string        `yaml:"ssl_root_cert" doc:"PEM file of the CAs that the server's certificate must come from, for verify-ca and verify-full; empty: libpq's default"`
	SSLCert         string        `yaml:"ssl_cert" doc:"PEM file of a client certificate"`
	SSLKey          string        `yaml:"ssl_key" doc:"PEM file of its key"`
	MaxOpenConns    int           `yaml:"max_open_conns" min:"1" max:"10000" doc:"Connections open at once"`
	MaxIdleConns    int           `yaml:"max_idle_conns" min:"0" max:"10000" doc:"Connections kept open without use"`
	ConnMaxLifetime time.Duration `yaml:"conn_max_lifetime" min:"0s" max:"24h" doc:"Age at which a connection is replaced; 0: never"`
}

// Enabled reports whether rules made through the API are in Postgres.
func (d *Database) Enabled() bool { return d.Host != "" }

// Auth is who may read and change rules and counters. With nothing set nobody may; checks need no token.
type Auth struct {
	TokensFile string `yaml:"tokens_file" doc:"YAML file of static tokens: the hash, subject and role of each; read again when it changes"`
	OIDC       OIDC   `yaml:"oidc"`
	Insecure   bool   `yaml:"insecure" doc:"Take everybody for an administrator; only while the server listens on loopback addresses alone"`
}

// OIDC accepts the tokens of an OpenID Connect issuer. It is on if Issuer is set.
type OIDC struct {
	Issuer     string        `yaml:"issuer" doc:"Issuer of JSON Web Tokens, exactly as it calls itself; empty: none is accepted"`
	Audience   []string      `yaml:"audience" doc:"What a token's audience may be; one of them must be in it"`
	JWKSURL    string        `yaml:"jwks_url" doc:"Where its keys are; empty: as its /.well-known/openid-configuration says"`
	RolesClaim string        `yaml:"roles_claim" doc:"Claim that holds the roles: names joined by dots, or a JSON pointer"`
	CAFile     string        `yaml:"ca_file" doc:"PEM file of the CAs that the issuer's certificate must come from; empty: the system's"`
	Refresh    time.Duration `yaml:"refresh" min:"10s" max:"24h" doc:"How often the keys are fetched, and so how long a withdrawn one is still accepted"`
	Interval   time.Duration `yaml:"interval" min:"100ms" max:"1h" doc:"Least time between two fetches, whatever key ids tokens name"`
}

// Enabled reports whether tokens of an issuer are accepted.
func (o *OIDC) Enabled() bool { return o.Issuer != "" }

// Failure is what happens while the store cannot decide.
type Failure struct {
	Mode             string  `yaml:"mode" oneof:"|allow|deny|local" doc:"What is answered then, unless a rule says otherwise: allow, deny, or local (counted in this process, at a fraction of the limit); empty: as ratelimit.fail_open says"`
	FallbackFraction float64 `yaml:"fallback_fraction" min:"0.000001" max:"1" doc:"Part of each limit that mode local allows; 1/N for N replicas keeps their sum within the limit"`
	LocalMaxKeys     int     `yaml:"local_max_keys" min:"1" max:"1000000000" doc:"Counters that mode local holds"`
	Breaker          Breaker `yaml:"breaker"`
}

// Breaker is when the store is given up and asked again.
type Breaker struct {
	Failures      int           `yaml:"failures" min:"1" max:"1000000" doc:"Failed calls in a row after which the store is left alone"`
	ProbeInterval time.Duration `yaml:"probe_interval" min:"10ms" max:"1m" doc:"How often it is then asked whether it is back, plus up to half of it at random"`
}

// Envoy is how Envoy is answered.
type Envoy struct {
	ResponseHeaders []string    `yaml:"response_headers" oneof:"x-ratelimit|envoy|draft-03|kong|ietf|custom" doc:"Header styles that weir writes; empty: none, because Envoy can write its own"`
	HeaderNames     HeaderNames `yaml:"header_names"`
	RetryAfter      bool        `yaml:"retry_after" doc:"Write Retry-After on denials beside these"`
	ProblemJSON     bool        `yaml:"problem_json" doc:"Give denied requests a body of application/problem+json"`
	DynamicMetadata bool        `yaml:"dynamic_metadata" doc:"Tell Envoy's access log and filters the rule, what remains, and whether the store decided"`
	RequestMetadata bool        `yaml:"request_metadata" doc:"Tell them what envoyproxy/ratelimit does: the request's domain, descriptors and cost, and which descriptors are over in quota mode"`
}

// HeaderNames are the names of the style custom, whose values are plain numbers.
type HeaderNames struct {
	Limit     string `yaml:"limit" doc:"Header of the style custom for the limit; empty: not written"`
	Remaining string `yaml:"remaining" doc:"Header of the style custom for what is left; empty: not written"`
	Reset     string `yaml:"reset" doc:"Header of the style custom for the seconds until the limit is whole again; empty: not written"`
}

// The values of Log.Format and Log.Identifiers.
const (
	LogText          = "text"
	LogJSON          = "json"
	IdentifiersHash  = "hash"
	IdentifiersPlain = "plain"
)

// Log is what is logged and how.
type Log struct {
	Level       string `yaml:"level" oneof:"debug|info|warn|error" doc:"Least level that is logged; debug has lines for single requests"`
	Format      string `yaml:"format" oneof:"text|json" doc:"Form of a line"`
	Identifiers string `yaml:"identifiers" oneof:"hash|plain" doc:"How values that identify clients are shown: hash keeps them recognizable but secret"`
	HashKey     Secret `yaml:"hash_key" doc:"Key of these hashes; replicas with one key show the same hash; empty: a new key at each start"`
	HashKeyFile string `yaml:"hash_key_file" doc:"File that holds the key"`
}

// Metrics is what is shown to Prometheus.
type Metrics struct {
	MaxValues int `yaml:"max_values" min:"0" max:"100000" doc:"Run-time values per rule that become labels where a rule asks for it; the rest is counted as other"`
	MaxRules  int `yaml:"max_rules" min:"1" max:"1000000" doc:"Rules that get labels of their own, in the order of their first use; the rest is counted as other"`
	// Address is a second listener, beside the HTTP port's /metrics.
	Address         string `yaml:"address" doc:"HOST:PORT of a listener for metrics alone, without TLS, beside the HTTP port's /metrics; empty: none"`
	Path            string `yaml:"path" doc:"Path of the metrics on metrics.address"`
	EnvoyproxyNames bool   `yaml:"envoyproxy_names" doc:"Show the statistics of envoyproxy/ratelimit too, on /metrics and metrics.address"`
	MapperFile      string `yaml:"mapper_file" doc:"Mapping of statsd_exporter that gives those statistics their names and labels; empty: the one that envoyproxy/ratelimit brings"`
}

// FailureMode is what is answered while the store cannot decide: failure.mode, or else what ratelimit.fail_open says.
func (c *Config) FailureMode() ratelimit.FailureMode {
	switch {
	case c.Failure.Mode == ratelimit.FailLocal.String():
		return ratelimit.FailLocal
	case c.Failure.Mode == ratelimit.FailClosed.String(), c.Failure.Mode == "" && !c.RateLimit.FailOpen:
		return ratelimit.FailClosed
	default:
		return ratelimit.FailOpen
	}
}

// DefaultWindow is the window of the default limit.
func (r *RateLimit) DefaultWindow() time.Duration {
	return time.Duration(r.DefaultWindowSeconds) * time.Second
}
