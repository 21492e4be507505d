package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// attempts is how often a request is sent that Redis refuses without executing it.
const attempts = 3

// Store keeps counters in Redis. It is safe for concurrent use.
type Store struct {
	options       Options
	script        script
	dialer        *dialer
	client        redis.UniversalClient
	cluster       *redis.ClusterClient // client, if it is one
	lane          lane                 // to the server, if it is none
	nodes         nodes
	flightsAtMost int

	calls    calls
	flights  flights
	requests requests
}

var _ engine.Store = (*Store)(nil)

// New returns a store on the Redis that the options name. It does not connect: Redis may be down, and is used once it
// answers. An error wraps ErrOptions.
func New(options Options) (*Store, error) {
	if err := options.normalize(); err != nil {
		return nil, err
	}
	script, err := loadScript()
	if err != nil {
		return nil, err
	}
	s := &Store{options: options, script: script, dialer: newDialer(options.tls()), flightsAtMost: min(maxFlights, options.PoolSize)}
	s.lane.store = s
	s.client = connect(&s.options, &s.script, s.dialer)
	s.cluster, _ = s.client.(*redis.ClusterClient)
	return s, nil
}

// Close closes all connections. Calls after it, and calls that wait for an answer, fail.
func (s *Store) Close() error { return s.client.Close() }

// Ping reports whether Redis answers; in a Cluster, whether every primary does. The error wraps ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if s.cluster == nil {
		return unavailable(s.client.Ping(ctx).Err())
	}
	return unavailable(s.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return node.Ping(ctx).Err()
	}))
}

// Take decides the charges as engine.Store says, by ctx's deadline or within Options.Timeout, whichever is earlier; what
// other callers ask for at the same time goes in the same round trip. A ctx that is cancelled before its deadline ends the
// wait within 10 ms, unless this caller's goroutine is the one that runs the round trip.
//
// The error of a charge that was not decided wraps ErrUnavailable, ErrCrossSlot, ErrTooManyHits, ratelimit.ErrConflict, or
// ratelimit.ErrCancelled if the charge was cancelled by the time at which its round trip began.
func (s *Store) Take(ctx context.Context, charges []ratelimit.Charge) {
	now := time.Now()
	deadline := s.deadline(ctx, now)
	for {
		n := portion(charges)
		if s.cluster != nil {
			s.takeCluster(ctx, deadline, charges[:n])
		} else {
			s.takeServer(ctx, deadline, charges[:n], now)
		}
		if charges = charges[n:]; len(charges) == 0 {
			return
		}
		now = time.Now()
	}
}

// portion returns how many of the charges one run of the script decides: at least one.
func portion(charges []ratelimit.Charge) int {
	hits := 0
	for i := range charges {
		if hits += len(charges[i].Hits); hits > maxHits && i > 0 {
			return i
		}
	}
	return len(charges)
}

func (s *Store) takeServer(ctx context.Context, deadline time.Time, charges []ratelimit.Charge, now time.Time) {
	c := s.calls.get(ctx, deadline)
	for i := range charges {
		if check(&charges[i]) {
			c.add(&charges[i], i, false)
		}
	}
	if len(c.charges) == 0 {
		s.calls.put(c)
		return
	}
	c.ready()
	s.lane.do(c, charges, now)
}

// runServer sends a request to the server until it is executed.
func (s *Store) runServer(ctx context.Context, r *request) {
	for attempt := 1; ; attempt++ {
		reply, err := s.send(ctx, r, s.client)
		if err == nil || attempt == attempts || !refused(err) {
			r.finish(reply, unavailable(err))
			return
		}
		s.prepareAgain(r, err)
	}
}

// prepareAgain readies a refused request to be sent again.
func (s *Store) prepareAgain(r *request, err error) {
	if redis.IsReadOnlyError(err) {
		// The server was a primary until now. Whoever is in its place is found by dialling again.
		s.dialer.distrust()
	} else {
		r.full = true
	}
}

// processor is what sends a command: a client, or the whole cluster, which follows redirections.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// send is one round trip.
func (s *Store) send(ctx context.Context, r *request, to processor) ([]int64, error) {
	cmd := r.command(ctx, &s.script)
	observed := s.observe()
	err := to.Process(ctx, cmd)
	observed(err)
	return cmd.Val(), err
}

// observe starts the clock of a round trip; the function that it returns stops it.
func (s *Store) observe() func(error) {
	if s.options.Observe == nil {
		return func(error) {}
	}
	began := time.Now()
	return func(err error) { s.options.Observe(time.Since(began), err) }
}

// now is the time at which calls are decided, unless Redis's clock says it.
func (s *Store) now() time.Time {
	if s.options.Now == nil {
		return time.Now()
	}
	return s.options.Now()
}

// deadline is the latest time at which a call ends that begins now.
func (s *Store) deadline(ctx context.Context, now time.Time) time.Time {
	deadline := now.Add(s.options.Timeout)
	if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
		return own
	}
	return deadline
}

// bound gives ctx the deadline that every call has.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= s.options.Timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.options.Timeout)
}

// Reset makes the keys as if they had never been used. IDs stay remembered. The error wraps ErrUnavailable.
func (s *Store) Reset(ctx context.Context, keys []string) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for len(keys) > 0 {
		n := min(len(keys), maxHits)
		observed := s.observe()
		err := s.unlink(ctx, keys[:n])
		observed(err)
		if err != nil {
			return unavailable(err)
		}
		keys = keys[n:]
	}
	return nil
}

func (s *Store) unlink(ctx context.Context, keys []string) error {
	if s.cluster == nil && s.options.Channel == "" {
		return s.client.Unlink(ctx, keys...).Err()
	}
	pipe := s.client.Pipeline()
	unlinked := make([]*redis.IntCmd, len(keys))
	for i, key := range keys {
		if s.cluster != nil {
			key = string(appendTagged(nil, key))
		}
		unlinked[i] = pipe.Unlink(ctx, key)
		s.announce(ctx, pipe, key)
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	for _, command := range unlinked {
		if err := command.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Stats is how the connections are doing. In a Cluster, those to all nodes.
type Stats struct {
	Open, Idle uint32 // now
	// Since the start: uses of an open connection, of a new one, waits for one in vain, and stale ones that were closed.
	Reused, Opened, Timeouts, Stale uint32
}

// Stats returns the state of the connections.
func (s *Store) Stats() Stats {
	p := s.client.PoolStats()
	return Stats{Open: p.TotalConns, Idle: p.IdleConns, Reused: p.Hits, Opened: p.Misses, Timeouts: p.Timeouts, Stale: p.StaleConns}
}

// connectionLost tells whether a round trip failed without an answer.
func connectionLost(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return err != nil && !answered
}
