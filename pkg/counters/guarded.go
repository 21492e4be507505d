package counters

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir/pkg/failover"
	"github.com/weirhq/weir/pkg/redisstore"
)

// Server is one Redis that counts, or one Cluster, and its guard.
type Server struct {
	Name  string // NameRedis or NamePerSecond
	redis *redisstore.Store
	guard *failover.Store
}

// Ping reports whether the server answers, whatever the guard thinks of it.
func (s *Server) Ping(ctx context.Context) error { return s.redis.Ping(ctx) }

// Stats is how the connections are doing.
func (s *Server) Stats() redisstore.Stats { return s.redis.Stats() }

// State is the circuit breaker's.
func (s *Server) State() failover.State { return s.guard.State() }

// guarded opens a server. Wrappers that change how it is asked go between redis and failover.New; one that may take longer than
// the server's Timeout must take Punctual from the guard.
func (s *Store) guarded(name string, options *redisstore.Options, o *Options) (*Server, error) {
	own := *options
	if own.Channel == "" {
		own.Channel = o.KeyPrefix + ":drop"
	}
	if own.IdempotencyTTL == 0 {
		own.IdempotencyTTL = o.IdempotencyTTL
	}
	redis, err := redisstore.New(own)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.closers = append(s.closers, func() { _ = redis.Close() })
	guard := o.Guard
	guard.Timeout, guard.Punctual = own.Timeout, true
	guard.Mode, guard.Local, guard.Fraction = o.OnFailure, s.Local, o.LocalFraction
	guard.Blame = func(err error) bool { return errors.Is(err, redisstore.ErrUnavailable) }
	guard.Failures, guard.ProbeInterval = o.Failures, o.ProbeInterval
	guard.Probe, guard.ProbePrefix = nil, o.KeyPrefix+":"
	if guard.Logger != nil && o.PerSecond != nil {
		guard.Logger = guard.Logger.With("server", name)
	}
	if o.OnBreaker != nil {
		guard.OnStateChange = func(_, to failover.State) { o.OnBreaker(name, to) }
	}
	store, err := failover.New(redis, guard)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.closers = append(s.closers, func() { _ = store.Close() })
	server := &Server{Name: name, redis: redis, guard: store}
	s.Servers = append(s.Servers, server)
	return server, nil
}
