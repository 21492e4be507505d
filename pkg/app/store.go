package app

import (
	"fmt"
	"sync"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/counters"
	"github.com/weirhq/weir/pkg/failover"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/telemetry"
)

// stores are where a server's counters live.
type stores struct {
	store *counters.Store
	// name is what people are told: "memory", or where Redis is.
	name string
}

// openStores makes the store that the settings ask for. It does not wait for Redis.
func (a *app) openStores() (stores, error) {
	settings := a.config
	options := counters.Options{
		KeyPrefix:      settings.RateLimit.KeyPrefix,
		MaxKeys:        settings.Memory.MaxKeys,
		IdempotencyTTL: settings.RateLimit.IdempotencyTTL,
		DenyCache:      settings.Redis.DenyCache,
		Leases:         true,
		OnFailure:      settings.FailureMode(),
		LocalFraction:  settings.Failure.FallbackFraction,
		LocalMaxKeys:   settings.Failure.LocalMaxKeys,
		Failures:       settings.Failure.Breaker.Failures,
		ProbeInterval:  settings.Failure.Breaker.ProbeInterval,
		Guard: failover.Options{
			Logger:  a.logger.With("component", "store"),
			OnTake:  a.metrics.StoreTook,
			OnPanic: func(value any) { a.panicked("store", value, nil) },
		},
		OnBreaker: a.breakers(),
	}
	var err error
	if options.Redis, err = a.redisOptions(counters.NameRedis, &settings.Redis); err != nil {
		return stores{}, err
	}
	if options.PerSecond, err = a.redisOptions(counters.NamePerSecond, &settings.PerSecond); err != nil {
		return stores{}, err
	}
	store, err := counters.Open(options)
	if err != nil {
		return stores{}, err
	}
	a.cleanup.add(store.Close)
	a.showStore(store)
	if store.Memory != nil {
		return stores{store: store, name: "memory"}, nil
	}
	name := redisName(&settings.Redis)
	if settings.PerSecond.Enabled() {
		name += ", windows of one second: " + redisName(&settings.PerSecond)
	}
	return stores{store: store, name: name}, nil
}

// breakers shows the state of the circuit breakers: the worst, if there are several.
func (a *app) breakers() func(server string, state failover.State) {
	var mu sync.Mutex
	states := make(map[string]failover.State)
	return func(server string, state failover.State) {
		mu.Lock()
		defer mu.Unlock()
		states[server] = state
		worst := failover.Closed
		for _, s := range states {
			if s == failover.Open || s == failover.HalfOpen && worst == failover.Closed {
				worst = s
			}
		}
		a.metrics.BreakerChanged(worst.String())
	}
}

// showStore shows the figures of the store's parts.
func (a *app) showStore(store *counters.Store) {
	a.showMemory("main", store.Memory, a.config.Memory.MaxKeys)
	a.showMemory("local", store.Local, a.config.Failure.LocalMaxKeys)
	if len(store.Servers) > 0 {
		a.metrics.RedisPool(func() telemetry.PoolStats {
			var sum telemetry.PoolStats
			for _, server := range store.Servers {
				stats := server.Stats()
				sum.Open += int(stats.Open)
				sum.Idle += int(stats.Idle)
				sum.Hits += uint64(stats.Reused)
				sum.Misses += uint64(stats.Opened)
				sum.Timeouts += uint64(stats.Timeouts)
				sum.Stale += uint64(stats.Stale)
			}
			return sum
		})
	}
	if cache := store.DenyCache; cache != nil {
		a.metrics.DenyCache(func() telemetry.DenyCacheStats { return telemetry.DenyCacheStats(cache.Stats()) })
	}
	if leases := store.Leases; leases != nil {
		a.metrics.Leases(func() telemetry.LeaseStats { return telemetry.LeaseStats(leases.Stats()) })
	}
}

func (a *app) showMemory(use string, store *memstore.Store, maxKeys int) {
	if store == nil {
		return
	}
	a.metrics.MemoryStore(use, func() telemetry.MemoryStats {
		stats := store.Stats()
		return telemetry.MemoryStats{Keys: int(stats.Keys), MaxKeys: maxKeys, Evictions: uint64(stats.Evictions)}
	})
}

// redisOptions are those of the server that a section of the settings names; nil if it names none.
func (a *app) redisOptions(section string, settings *config.Redis) (*redisstore.Options, error) {
	if !settings.Enabled() {
		return nil, nil //nolint:nilnil // none is no error
	}
	sentinelPassword, err := settings.SentinelPassword.Value()
	if err != nil {
		return nil, fmt.Errorf("%s.sentinel_password_file: %w", section, err)
	}
	options := &redisstore.Options{
		URL:              string(settings.URL),
		DB:               settings.DB,
		Username:         settings.Username,
		SentinelUsername: settings.SentinelUsername,
		SentinelPassword: sentinelPassword,
		PoolSize:         settings.PoolSize,
		Timeout:          settings.Timeout(),
		EnvoyJitter:      a.config.RateLimit.KeyExpiryJitter,
		EnvoyStop:        a.config.RateLimit.StopAtLimit,
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
				a.logger.Error("the password of Redis cannot be read", "server", section, "error", err)
			}
			return settings.Username, password
		}
	}
	if options.TLSConfig, err = a.redisTLS(section, &settings.TLS); err != nil {
		return nil, err
	}
	return options, nil
}

// redisName says where counters are, without secrets.
func redisName(settings *config.Redis) string {
	if settings.URL != "" {
		return "Redis at " + settings.URL.String()
	}
	return fmt.Sprintf("Redis (%s) at %v", settings.Mode, settings.Addrs)
}
