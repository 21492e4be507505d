package config

import (
	"net"
	"net/url"
	"slices"
	"time"
)

// The values of Redis.Mode.
const (
	RedisSingle   = "single"
	RedisSentinel = "sentinel"
	RedisCluster  = "cluster"
)

// Redis is a store that replicas share. It is on if URL or Addrs is set.
//
// Config.PerSecond is a second one, for windows of one second.
type Redis struct {
	URL                  URL      `yaml:"url" doc:"Server: redis://user:password@host:6379/0, rediss:// with TLS, unix:///path?db=0; with neither url nor addrs: none"`
	PoolSize             int      `yaml:"pool_size" min:"1" max:"10000" doc:"Connections, per server"`
	TimeoutMS            int64    `yaml:"timeout_ms" min:"1" max:"60000" doc:"Deadline of every call, in milliseconds"`
	DenyCache            int      `yaml:"deny_cache" min:"0" max:"100000000" doc:"Counters over their limit that are remembered, so that Redis is not asked until they can be ready again; 0: none"`
	Password             Secret   `yaml:"password" doc:"Password; beats the one in the URL"`
	PasswordFile         string   `yaml:"password_file" doc:"File that holds the password, read again for each connection"`
	Mode                 string   `yaml:"mode" oneof:"single|sentinel|cluster" doc:"What the addresses are"`
	Addrs                []string `yaml:"addrs" doc:"host:port of the server, the Sentinels, or some nodes of the cluster"`
	MasterName           string   `yaml:"master_name" doc:"Name under which the Sentinels know the server"`
	Username             string   `yaml:"username" doc:"User; beats the one in the URL"`
	DB                   int      `yaml:"db" min:"0" max:"1048576" doc:"Number of the database; with a URL write it there"`
	SentinelUsername     string   `yaml:"sentinel_username" doc:"User at the Sentinels"`
	SentinelPassword     Secret   `yaml:"sentinel_password" doc:"Password at the Sentinels"`
	SentinelPasswordFile string   `yaml:"sentinel_password_file" doc:"File that holds it, read at the start"`
	TLS                  RedisTLS `yaml:"tls"`
}

// RedisTLS protects the connections to Redis.
type RedisTLS struct {
	Enabled    bool   `yaml:"enabled" doc:"Use TLS; a rediss:// URL turns it on too"`
	CAFile     string `yaml:"ca_file" doc:"PEM file of the CAs that the server's certificate must come from; empty: the system's"`
	CertFile   string `yaml:"cert_file" doc:"PEM file of a client certificate"`
	KeyFile    string `yaml:"key_file" doc:"PEM file of its key"`
	ServerName string `yaml:"server_name" doc:"Name that the server's certificate must have; empty: the host of the address"`
	// SkipNameCheck still wants a certificate of the CAs.
	SkipNameCheck bool `yaml:"skip_name_check" doc:"Accept any name in the server's certificate, which must still come from the CAs"`
}

// Enabled reports whether counters are in Redis.
func (r *Redis) Enabled() bool { return r.URL != "" || len(r.Addrs) > 0 }

// Timeout is the deadline of every call of the store.
func (r *Redis) Timeout() time.Duration { return time.Duration(r.TimeoutMS) * time.Millisecond }

func (c *Config) checkRedis(k *checker) {
	if !c.Redis.Enabled() {
		k.unused(c, "redis", "counters are in memory, because redis.url and redis.addrs are empty: set one of them, or remove this")
		return
	}
	c.checkServerOf(k, "redis", &c.Redis)
}

func (c *Config) checkPerSecond(k *checker) {
	const section = "redis_per_second"
	switch r := &c.PerSecond; {
	case !r.Enabled():
		k.unused(c, section, "there is no Redis for windows of one second, because redis_per_second.url and redis_per_second.addrs are empty: set one of them, or remove this")
	case !c.Redis.Enabled():
		k.fault(section+".url", "is set without a Redis for all other windows: set redis.url or redis.addrs, or remove this")
	default:
		if r.DenyCache != 0 {
			k.fault(section+".deny_cache", "has no effect, because redis.deny_cache is for both: remove it")
		}
		c.checkServerOf(k, section, r)
	}
}

// checkServerOf checks a section that names a Redis.
func (c *Config) checkServerOf(k *checker, section string, r *Redis) {
	if r.URL != "" && len(r.Addrs) > 0 {
		k.fault(section+".addrs", "is set beside %s.url: use one of them", section)
	}
	if r.URL != "" {
		checkRedisURL(k, section, r)
	}
	for _, address := range r.Addrs {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || !isPort(port) {
			k.fault(section+".addrs", "%q is no address: write host:port", address)
		}
	}
	switch r.Mode {
	case RedisSingle:
		if len(r.Addrs) > 1 {
			k.fault(section+".addrs", "are %d while %s.mode is single: write cluster or sentinel there, or one address here", len(r.Addrs), section)
		}
	case RedisSentinel, RedisCluster:
		if r.URL != "" {
			k.fault(section+".url", "names one server while %[1]s.mode is %[2]s: use %[1]s.addrs", section, r.Mode)
		}
	}
	if r.Mode == RedisCluster && r.DB != 0 {
		k.fault(section+".db", "is %d with %s.mode cluster: a cluster has database 0 alone", r.DB, section)
	}
	if r.URL != "" && r.DB != 0 {
		k.fault(section+".db", "is set beside %s.url: write the database at the URL's end, as in redis://host:6379/1", section)
	}
	if (r.Mode == RedisSentinel) != (r.MasterName != "") {
		k.fault(section+".master_name", "belongs to %s.mode sentinel: set both or none", section)
	}
	if r.Mode != RedisSentinel && (r.SentinelUsername != "" || !r.SentinelPassword.IsZero()) {
		k.fault(section+".mode", "is %[1]s while %[2]s.sentinel_username or %[2]s.sentinel_password is set: write sentinel, or remove them", r.Mode, section)
	}
	k.pair(section+".tls.cert_file", r.TLS.CertFile, section+".tls.key_file", r.TLS.KeyFile)
	if !r.TLS.Enabled {
		k.unused(c, section+".tls", section+".tls.enabled is false: write true, or remove this")
	}
}

// checkRedisURL does not repeat the URL as it was written: a password may stand in it, even in one that cannot be read.
func checkRedisURL(k *checker, section string, r *Redis) {
	parsed, err := url.Parse(string(r.URL))
	const form = "write redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/socket"
	switch {
	case err != nil:
		k.fault(section+".url", "cannot be read as a URL: %s; percent-encode special characters of a password, or use %s.password_file", form, section)
	case parsed.Scheme == "unix" && (parsed.Path == "" || parsed.Host != ""),
		(parsed.Scheme == "redis" || parsed.Scheme == "rediss") && parsed.Hostname() == "",
		!slices.Contains([]string{"redis", "rediss", "unix"}, parsed.Scheme):
		k.fault(section+".url", "%q is no address of a Redis server: %s", r.URL.String(), form)
	}
}
