package counters

import (
	"time"

	"github.com/weirhq/weir/pkg/failover"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
)

const (
	// DefaultKeyPrefix is what keys begin with if Options.KeyPrefix is empty; the engine's default, too.
	DefaultKeyPrefix = "ratelimit"
	// DefaultMaxKeys is how many counters are held in memory if Options.MaxKeys or Options.LocalMaxKeys is 0.
	DefaultMaxKeys = 100_000
)

// The names of the servers that count, for logs, metrics and readiness.
const (
	NameRedis     = "redis"
	NamePerSecond = "redis_per_second"
)

// Options say where counters live. The zero value counts in memory.
type Options struct {
	// Redis is where counters are. Nil: in memory, and the rest but MaxKeys and IdempotencyTTL means nothing.
	Redis *redisstore.Options
	// PerSecond is a second Redis, for counters of windows of one second. Nil: they are with the others. It needs Redis.
	PerSecond *redisstore.Options
	// KeyPrefix begins the keys of the engine, and the names of channels and probes. Empty: DefaultKeyPrefix.
	KeyPrefix string
	// MaxKeys bounds the counters in memory where there is no Redis. 0: DefaultMaxKeys.
	MaxKeys int
	// IdempotencyTTL is how long the IDs of charges are remembered, wherever that is. 0: the stores' default.
	IdempotencyTTL time.Duration

	// DenyCache is how many counters that are over their limit are remembered. 0: none.
	DenyCache int
	// Leases hands out hits of busy counters that were taken ahead, where a rule has a lease.
	Leases bool

	// OnFailure answers while Redis cannot decide, where a rule does not say otherwise. FailureDefault: ratelimit.FailOpen.
	OnFailure ratelimit.FailureMode
	// LocalFraction is the part of each limit that is allowed in mode FailLocal. 0: failover.DefaultFraction.
	LocalFraction float64
	// LocalMaxKeys bounds the counters of that mode. 0: DefaultMaxKeys.
	LocalMaxKeys int
	// Failures and ProbeInterval are failover.Options' of the same names.
	Failures      int
	ProbeInterval time.Duration
	// Guard is what else the guards are to do: its Logger, OnTake and OnPanic are used. The rest of it is set here.
	Guard failover.Options
	// OnBreaker, if not nil, is told when a server's circuit breaker changes. It must be quick.
	OnBreaker func(server string, state failover.State)
}

func (o Options) withDefaults() Options {
	if o.KeyPrefix == "" {
		o.KeyPrefix = DefaultKeyPrefix
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.LocalMaxKeys == 0 {
		o.LocalMaxKeys = DefaultMaxKeys
	}
	return o
}
