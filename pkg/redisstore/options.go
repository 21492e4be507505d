package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// DefaultPoolSize is the number of connections to a server if Options.PoolSize is 0.
	DefaultPoolSize = 20
	// DefaultTimeout is how long a call may take if Options.Timeout is 0.
	DefaultTimeout = 100 * time.Millisecond
	// DefaultIdempotencyTTL is how long a charge's ID is remembered if Options.IdempotencyTTL is 0.
	DefaultIdempotencyTTL = 5 * time.Minute

	maxPoolSize = 10_000
)

// ErrOptions is wrapped by every error of New that options cause.
var ErrOptions = errors.New("invalid Redis settings")

// Options say which Redis to use and how. Exactly one of URL, Addr, Cluster, and Sentinel with MasterName must be set.
type Options struct {
	// URL names one server: redis://USER:PASSWORD@HOST:PORT/DB, rediss:// for TLS, or unix://USER:PASSWORD@/PATH?db=DB. Every
	// part but the scheme, the host and the path of a socket may be left out.
	URL string
	// Addr names one server: host:port, or the absolute path of a unix socket.
	Addr string
	// Cluster lists host:port of some nodes of a Redis Cluster; the others are found through them.
	Cluster []string
	// Sentinel lists host:port of the sentinels that watch the primary called MasterName.
	Sentinel   []string
	MasterName string

	// DB is the database's number, 0 to 15 unless the server is set up otherwise. A Cluster has only 0.
	DB int
	// Username and Password log in to Redis. What is empty is taken from URL.
	Username, Password string
	// Credentials, if not nil, is asked for both at each new connection instead, so that a changed password is picked up. An
	// empty username means Username. It must be safe for concurrent use, and fast.
	Credentials func() (username, password string)
	// SentinelUsername and SentinelPassword log in to the sentinels.
	SentinelUsername, SentinelPassword string
	// TLS, if not nil, is used for all connections, those to sentinels too. Without a ServerName the host of each address is
	// expected. A rediss:// URL needs no TLS here.
	TLS *tls.Config
	// TLSConfig, if not nil, is asked at each new connection instead, so that changed files are picked up. The configuration is
	// the connection's own. It must be safe for concurrent use, and fast.
	TLSConfig func() *tls.Config

	// PoolSize is how many connections to each server are open at most, 1 to 10,000. 0 means DefaultPoolSize.
	PoolSize int
	// Timeout bounds a call whose context has no earlier deadline. 0 means DefaultTimeout.
	Timeout time.Duration
	// IdempotencyTTL is how long a charge's ID is remembered. 0 means DefaultIdempotencyTTL.
	IdempotencyTTL time.Duration

	// EnvoyJitter is how much longer than their window, at random, the keys of envoyproxy/ratelimit live at most, so that those
	// of one window do not all end at once. 0: not longer.
	EnvoyJitter time.Duration
	// EnvoyStop counts no hits that were denied under those keys, as envoyproxy/ratelimit can be told to.
	EnvoyStop bool

	// Channel, if not empty, is the pub/sub channel on which refunds and resets are announced to those who Listen.
	Channel string

	// Now, if not nil, is the clock that counters run by, for tests. nil means the clock of the Redis server.
	Now func() time.Time
	// Observe, if not nil, is told of every round trip: how long it took, waiting for a connection included, and its error.
	// It must be safe for concurrent use, and fast.
	Observe func(took time.Duration, err error)
}

// normalize reports what is wrong with o, fills in defaults, and takes URL apart.
func (o *Options) normalize() error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...)
	}
	targets := 0
	for _, set := range []bool{o.URL != "", o.Addr != "", len(o.Cluster) > 0, len(o.Sentinel) > 0} {
		if set {
			targets++
		}
	}
	switch {
	case targets == 0:
		return fault("no server is named: set a URL such as redis://127.0.0.1:6379, or addresses of a cluster or of sentinels")
	case targets > 1:
		return fault("more than one of URL, address, cluster and sentinels is set: set one")
	case len(o.Sentinel) > 0 && o.MasterName == "":
		return fault("sentinels without the name of their primary: set the master name, as in `sentinel monitor NAME ...`")
	case len(o.Sentinel) == 0 && o.MasterName != "":
		return fault("master name %q without sentinels: set their addresses", o.MasterName)
	case o.DB < 0:
		return fault("database %d: write 0 or more", o.DB)
	case len(o.Cluster) > 0 && o.DB != 0:
		return fault("database %d: a Redis Cluster has only database 0", o.DB)
	case o.PoolSize < 0 || o.PoolSize > maxPoolSize:
		return fault("pool size %d: write 1 to %d, or 0 for %d", o.PoolSize, maxPoolSize, DefaultPoolSize)
	case o.Timeout < 0:
		return fault("timeout %v: write a positive duration, or 0 for %v", o.Timeout, DefaultTimeout)
	case o.EnvoyJitter < 0 || o.EnvoyJitter > maxEnvoyJitter:
		return fault("jitter %v of keys' lives: write 0 to %v", o.EnvoyJitter, maxEnvoyJitter)
	case o.IdempotencyTTL < 0 || o.IdempotencyTTL > ratelimit.MaxWindow:
		return fault("idempotency period %v: write a positive duration up to %v, or 0 for %v",
			o.IdempotencyTTL, ratelimit.MaxWindow, DefaultIdempotencyTTL)
	}
	for _, addr := range append(append([]string{}, o.Cluster...), o.Sentinel...) {
		if !isHostPort(addr) {
			return fault("address %q: write HOST:PORT", addr)
		}
	}
	if o.Addr != "" && !strings.HasPrefix(o.Addr, "/") && !isHostPort(o.Addr) {
		return fault("address %q: write HOST:PORT or the absolute path of a unix socket", o.Addr)
	}
	if o.URL != "" {
		if err := o.parseURL(); err != nil {
			return fmt.Errorf("%w: %w", ErrOptions, err)
		}
	}
	if o.PoolSize == 0 {
		o.PoolSize = DefaultPoolSize
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.IdempotencyTTL == 0 {
		o.IdempotencyTTL = DefaultIdempotencyTTL
	}
	return nil
}

// parseURL sets the fields that URL stands for. Its errors do not quote the URL, which may hold a password.
func (o *Options) parseURL() error {
	u, err := url.Parse(o.URL)
	if err != nil {
		return errors.New("the URL cannot be read: write redis://USER:PASSWORD@HOST:PORT/DB, and %XX for special characters in user and password")
	}
	db := strings.Trim(u.Path, "/")
	query := u.Query()
	switch u.Scheme {
	case "redis", "rediss":
		if u.Hostname() == "" {
			return fmt.Errorf("the %s URL names no host: write %s://HOST:PORT", u.Scheme, u.Scheme)
		}
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		o.Addr = net.JoinHostPort(u.Hostname(), port)
		if u.Scheme == "rediss" && o.TLS == nil && o.TLSConfig == nil {
			o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	case "unix":
		if !strings.HasPrefix(u.Path, "/") || u.Host != "" {
			return errors.New("the unix URL names no socket: write unix:///PATH")
		}
		o.Addr, db = u.Path, ""
	default:
		return fmt.Errorf("the URL's scheme is %q: write redis, rediss or unix", u.Scheme)
	}
	if query.Has("db") {
		db = query.Get("db")
		query.Del("db")
	}
	for name := range query {
		return fmt.Errorf("the URL has a parameter %q: only db is known, other settings have their own place", name)
	}
	if db != "" {
		n, err := strconv.Atoi(db)
		if err != nil || n < 0 {
			return fmt.Errorf("the URL's database is %q: write a number, 0 or more", db)
		}
		if o.DB != 0 && o.DB != n {
			return fmt.Errorf("the URL's database is %d and the setting's %d: write one", n, o.DB)
		}
		o.DB = n
	}
	if o.Username == "" {
		o.Username = u.User.Username()
	}
	if o.Password == "" {
		o.Password, _ = u.User.Password()
	}
	return nil
}

func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	n, notNumber := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && notNumber == nil && n > 0
}
