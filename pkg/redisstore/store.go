package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// attempts is how often a request is sent that Redis refuses without executing it.
const attempts = 3

// Store keeps counters in Redis. It is safe for concurrent use.
type Store struct {
	options  Options
	script   script
	dialer   *dialer
	client   redis.UniversalClient
	cluster  *redis.ClusterClient // client, if it is one
	requests sync.Pool            // of *request
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
	s := &Store{options: options, script: script, dialer: newDialer(options.TLS)}
	s.requests.New = func() any { return new(request) }
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

// Take decides the charges as engine.Store says, by ctx's deadline or within Options.Timeout, whichever is earlier. A ctx
// that is cancelled without a deadline is noticed before a request is sent, not while it waits for an answer.
//
// The error of a charge that was not decided wraps ErrUnavailable, ErrCrossSlot, ErrTooManyHits or ratelimit.ErrConflict.
func (s *Store) Take(ctx context.Context, charges []ratelimit.Charge) {
	if len(charges) == 0 {
		return
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for len(charges) > 0 {
		n := portion(charges)
		if s.cluster != nil {
			s.takeCluster(ctx, charges[:n])
		} else {
			s.takeServer(ctx, charges[:n])
		}
		charges = charges[n:]
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

// open readies a charge, and reports whether it is to be sent.
func open(c *ratelimit.Charge) bool {
	c.Err, c.Degraded = nil, ratelimit.FailureDefault
	switch {
	case len(c.Hits) > maxChargeHits:
		c.Err = fmt.Errorf("%w: %d, at most %d", ErrTooManyHits, len(c.Hits), maxChargeHits)
	case len(c.Results) < len(c.Hits):
		c.Err = fmt.Errorf("a charge of %d hits has room for %d results", len(c.Hits), len(c.Results))
	default:
		return len(c.Hits) > 0
	}
	return false
}

// takeServer decides charges on one server, in one round trip.
func (s *Store) takeServer(ctx context.Context, charges []ratelimit.Charge) {
	r := s.requests.Get().(*request)
	clock := s.clock()
	for i := range charges {
		if open(&charges[i]) {
			r.add(&charges[i], clock.time, false)
		}
	}
	if r.hits > 0 {
		r.pack(clock.micros, s.options.IdempotencyTTL)
		r.finish(s.run(ctx, r))
	}
	s.release(r)
}

func (s *Store) release(r *request) {
	r.reset()
	s.requests.Put(r)
}

// run sends a request to the server until it is executed.
func (s *Store) run(ctx context.Context, r *request) ([]int64, error) {
	for attempt := 1; ; attempt++ {
		reply, err := s.send(ctx, r, s.client)
		if err == nil || attempt == attempts || !refused(err) {
			return reply, unavailable(err)
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

// moment is when a call is decided. micros is nil if Redis's clock says it; time is this process's then, for calendars.
type moment struct {
	time   time.Time
	micros *int64
}

func (s *Store) clock() moment {
	if s.options.Now == nil {
		return moment{time: time.Now()}
	}
	now := s.options.Now()
	micros := now.UnixMicro()
	return moment{now, &micros}
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
	if s.cluster == nil {
		return s.client.Unlink(ctx, keys...).Err()
	}
	_, err := s.cluster.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			pipe.Unlink(ctx, string(appendTagged(nil, key)))
		}
		return nil
	})
	return err
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
