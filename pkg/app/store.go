package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/denycache"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/failover"
	"github.com/weirhq/weir/pkg/lease"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/telemetry"
)

// stores are where a server's counters live.
type stores struct {
	store engine.Store
	// name is what people are told: "memory", or where Redis is.
	name string
	// ping asks the shared store; nil for counters in memory, which cannot be away.
	ping func(context.Context) error
}

// openStores makes the store that the settings ask for. It does not wait for Redis.
func (a *app) openStores() (stores, error) {
	settings := a.config
	if !settings.Redis.Enabled() {
		store := a.memory("main", settings.Memory.MaxKeys)
		return stores{store: store, name: "memory"}, nil
	}
	options, err := a.redisOptions()
	if err != nil {
		return stores{}, err
	}
	redis, err := redisstore.New(options)
	if err != nil {
		return stores{}, fmt.Errorf("redis: %w", err)
	}
	a.cleanup.add(func() { _ = redis.Close() })
	a.metrics.RedisPool(func() telemetry.PoolStats {
		stats := redis.Stats()
		return telemetry.PoolStats{
			Open: int(stats.Open), Idle: int(stats.Idle),
			Hits: uint64(stats.Reused), Misses: uint64(stats.Opened),
			Timeouts: uint64(stats.Timeouts), Stale: uint64(stats.Stale),
		}
	})
	guarded, err := failover.New(redis, failover.Options{
		Timeout:       settings.Redis.Timeout(),
		Punctual:      true,
		Mode:          settings.FailureMode(),
		Local:         a.memory("local", settings.Failure.LocalMaxKeys),
		Fraction:      settings.Failure.FallbackFraction,
		Blame:         func(err error) bool { return errors.Is(err, redisstore.ErrUnavailable) },
		Failures:      settings.Failure.Breaker.Failures,
		ProbeInterval: settings.Failure.Breaker.ProbeInterval,
		ProbePrefix:   settings.RateLimit.KeyPrefix + ":",
		Logger:        a.logger.With("component", "store"),
		OnStateChange: func(_, to failover.State) { a.metrics.BreakerChanged(to.String()) },
		OnTake:        a.metrics.StoreTook,
		OnPanic:       func(value any) { a.panicked("store", value, nil) },
	})
	if err != nil {
		return stores{}, err
	}
	a.cleanup.add(func() { _ = guarded.Close() })
	return stores{store: a.ahead(redis, guarded), name: a.redisName(), ping: redis.Ping}, nil
}

// ahead answers without Redis what it can: hits of leases first, then denials of counters that are known to be over their limit.
// Both stand before the guard: what they answer says nothing of Redis.
func (a *app) ahead(redis *redisstore.Store, guarded engine.Store) engine.Store {
	store := guarded
	var listeners []redisstore.Listener
	if entries := a.config.Redis.DenyCache; entries > 0 {
		cache := denycache.New(store, denycache.Options{Entries: entries})
		a.metrics.DenyCache(func() telemetry.DenyCacheStats { return telemetry.DenyCacheStats(cache.Stats()) })
		store, listeners = cache, append(listeners, cache)
	}
	leases := lease.New(store, lease.Options{})
	a.metrics.Leases(func() telemetry.LeaseStats { return telemetry.LeaseStats(leases.Stats()) })
	a.cleanup.add(redis.Listen(append(listeners, leases)...))
	return leases
}

func (a *app) memory(use string, maxKeys int) *memstore.Store {
	store := memstore.New(memstore.Options{MaxKeys: maxKeys, IDPeriod: a.config.RateLimit.IdempotencyTTL})
	a.cleanup.add(store.Close)
	a.metrics.MemoryStore(use, func() telemetry.MemoryStats {
		stats := store.Stats()
		return telemetry.MemoryStats{Keys: int(stats.Keys), MaxKeys: maxKeys, Evictions: uint64(stats.Evictions)}
	})
	return store
}

func (a *app) redisOptions() (redisstore.Options, error) {
	settings := &a.config.Redis
	sentinelPassword, err := settings.SentinelPassword.Value()
	if err != nil {
		return redisstore.Options{}, fmt.Errorf("redis.sentinel_password_file: %w", err)
	}
	options := redisstore.Options{
		URL:              string(settings.URL),
		DB:               settings.DB,
		Username:         settings.Username,
		SentinelUsername: settings.SentinelUsername,
		SentinelPassword: sentinelPassword,
		PoolSize:         settings.PoolSize,
		Timeout:          settings.Timeout(),
		IdempotencyTTL:   a.config.RateLimit.IdempotencyTTL,
		Channel:          a.config.RateLimit.KeyPrefix + ":drop",
	}
	switch {
	case settings.Mode == config.RedisSentinel:
		options.Sentinel, options.MasterName = settings.Addrs, settings.MasterName
	case settings.Mode == config.RedisCluster:
		options.Cluster = settings.Addrs
	case len(settings.Addrs) > 0:
		options.Addr = settings.Addrs[0]
	}
	if !settings.Password.IsZero() {
		options.Credentials = func() (string, string) {
			password, err := settings.Password.Value()
			if err != nil {
				a.logger.Error("the password of Redis cannot be read", "error", err)
			}
			return settings.Username, password
		}
	}
	if options.TLS, err = a.redisTLS(&settings.TLS); err != nil {
		return redisstore.Options{}, err
	}
	return options, nil
}

// redisName says where the counters are, without secrets.
func (a *app) redisName() string {
	settings := &a.config.Redis
	if settings.URL != "" {
		return "Redis at " + settings.URL.String()
	}
	return fmt.Sprintf("Redis (%s) at %v", settings.Mode, settings.Addrs)
}
