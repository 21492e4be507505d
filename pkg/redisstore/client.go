package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// leastTimeout bounds what go-redis does without a caller's deadline: dialling in the background, asking a cluster for its
// nodes. A caller does not wait for it longer than the own deadline.
const leastTimeout = time.Second

// connect makes the client that o describes. It connects when it is first used.
func connect(o *Options, s *script, d *dialer) redis.UniversalClient {
	quiet.Do(func() { redis.SetLogger(debugLogger{}) })
	patient := max(2*o.Timeout, leastTimeout)
	u := redis.UniversalOptions{
		Addrs: []string{o.Addr}, DB: o.DB,
		Dialer: d.dial,
		OnConnect: func(ctx context.Context, cn *redis.Conn) error {
			err := cn.ScriptLoad(ctx, s.source).Err()
			if _, answered := errors.AsType[redis.Error](err); answered {
				return nil // a sentinel; or the reason will be told to the first request, which can do without
			}
			return err
		},
		Username: o.Username, Password: o.Password, CredentialsProvider: o.credentials(),
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword, MasterName: o.MasterName,

		Protocol: 2, // nothing of 3 is used, and looking for pushed messages costs a system call a request
		// What may be sent again is decided here, see refused.
		MaxRetries: -1, DialerRetries: 1,
		ContextTimeoutEnabled: true,
		DialTimeout:           patient, ReadTimeout: patient, WriteTimeout: patient, PoolTimeout: patient,
		PoolSize: o.PoolSize, PipelinePoolSize: -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch {
	case len(o.Cluster) > 0:
		u.Addrs = o.Cluster
		cluster := u.Cluster()
		cluster.DisableRoutingPolicies = true // or it asks for a list of all commands first
		return redis.NewClusterClient(cluster)
	case len(o.Sentinel) > 0:
		u.Addrs = o.Sentinel
		return redis.NewFailoverClient(u.Failover())
	default:
		simple := u.Simple()
		if strings.HasPrefix(o.Addr, "/") {
			simple.Network = "unix"
		}
		return redis.NewClient(simple)
	}
}

// credentials is what go-redis asks for user and password; nil: they do not change.
func (o *Options) credentials() func() (username, password string) {
	if o.Credentials == nil {
		return nil
	}
	return func() (username, password string) {
		username, password = o.Credentials()
		if username == "" {
			username = o.Username
		}
		return username, password
	}
}

// tls is what a new connection asks for its configuration; nil: it is plain text.
func (o *Options) tls() func() *tls.Config {
	if o.TLSConfig == nil && o.TLS != nil {
		return o.TLS.Clone
	}
	return o.TLSConfig
}

var quiet sync.Once

// debugLogger takes go-redis's log lines, one for each failed dial, which say nothing that a caller's error does not.
type debugLogger struct{}

func (debugLogger) Printf(ctx context.Context, format string, args ...any) {
	if log := slog.Default(); log.Enabled(ctx, slog.LevelDebug) {
		log.DebugContext(ctx, "the Redis client says", "message", fmt.Sprintf(format, args...))
	}
}
