package denycache

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// DefaultEntries is how many counters are remembered if Options.Entries is 0.
	DefaultEntries = 100_000
	// DefaultMaxAge is how old an answer may be if Options.MaxAge is 0.
	DefaultMaxAge = time.Second
)

// Options are a Store's settings. The zero value is usable.
type Options struct {
	// Entries is how many denied counters are remembered at most, of about 150 bytes and their keys. 0: DefaultEntries.
	Entries int
	// MaxAge is how long the store behind is not asked about a counter at most. 0: DefaultMaxAge.
	MaxAge time.Duration
	// Now, if not nil, is the clock, for tests. It may go backwards: what was remembered later than now is not used.
	Now func() time.Time
}

// Store answers for counters that are known to be empty, and asks the store behind it about all others. It is off until
// Listening. Safe for concurrent use.
type Store struct {
	behind  engine.Store
	options Options
	on      atomic.Bool
	seed    maphash.Seed
	shards  [shards]shard
	works   sync.Pool // of *work
	answers atomic.Uint64
}

var _ engine.Store = (*Store)(nil)

// New returns a Store before another one.
func New(behind engine.Store, options Options) *Store {
	if options.Entries <= 0 {
		options.Entries = DefaultEntries
	}
	if options.MaxAge <= 0 {
		options.MaxAge = DefaultMaxAge
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	s := &Store{behind: behind, options: options, seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].most = max(1, options.Entries/shards)
	}
	return s
}

// work is what a call of Take needs besides its charges.
type work struct {
	epochs []uint64           // for each charge, its shard's when the call began
	rest   []ratelimit.Charge // what is not answered here
	origin []int              // for each of rest, its place among the charges
}

const (
	// keepCharges bounds the memory that is kept for the next call.
	keepCharges = 1 << 10
	// fewCharges is how many charges of a call are looked at, all with each other.
	fewCharges = 64
)

// Take decides the charges, as engine.Store says.
func (s *Store) Take(ctx context.Context, charges []ratelimit.Charge) {
	if refunds(charges) {
		s.behind.Take(ctx, charges)
		s.dropRefunded(charges)
		return
	}
	if !s.on.Load() {
		s.behind.Take(ctx, charges)
		return
	}
	w, ok := s.works.Get().(*work)
	if !ok {
		w = new(work)
	}
	now := s.options.Now()
	answered := 0
	for i := range charges {
		known, epoch := s.deny(charges, i, now)
		w.epochs = append(w.epochs, epoch)
		if known {
			answered++
		} else {
			w.origin = append(w.origin, i)
		}
	}
	switch {
	case answered == 0:
		s.behind.Take(ctx, charges)
		s.learn(charges, w, now)
	case answered < len(charges):
		for _, i := range w.origin {
			w.rest = append(w.rest, charges[i])
		}
		s.behind.Take(ctx, w.rest)
		for i, at := range w.origin {
			charges[at] = w.rest[i]
		}
		s.learn(charges, w, now)
	}
	if answered > 0 {
		s.answers.Add(uint64(answered))
	}
	s.release(w)
}

func (s *Store) release(w *work) {
	if cap(w.epochs) > keepCharges {
		return
	}
	clear(w.rest)
	w.epochs, w.rest, w.origin = w.epochs[:0], w.rest[:0], w.origin[:0]
	s.works.Put(w)
}

// refunds reports whether any charge gives back. The others of its call are not answered here then, for they come after it.
func refunds(charges []ratelimit.Charge) bool {
	for i := range charges {
		for j := range charges[i].Hits {
			if charges[i].Hits[j].Cost < 0 {
				return true
			}
		}
	}
	return false
}

// dropRefunded forgets the counters that were given something back, or may have been.
func (s *Store) dropRefunded(charges []ratelimit.Charge) {
	for i := range charges {
		s.outdate(&charges[i])
		for j := range charges[i].Hits {
			if hit := &charges[i].Hits[j]; hit.Cost < 0 {
				s.Drop(hit.Key)
			}
		}
	}
}

// deny answers charge number i if it is certain that it is denied. It returns the epoch of the counter's shard.
func (s *Store) deny(charges []ratelimit.Charge, i int, now time.Time) (known bool, epoch uint64) {
	c := &charges[i]
	if len(c.Hits) != 1 || len(c.Results) == 0 || c.ID != "" || c.Hits[0].Cost == 0 {
		return false, 0
	}
	hit := &c.Hits[0]
	shard := s.shard(hit.Key)
	d, epoch := shard.find(hit.Key)
	elapsed := now.Sub(d.at)
	if d.limit != hit.Limit || d.cost != hit.Cost || elapsed < 0 || elapsed >= d.valid || changes(charges[:i], hit) {
		return false, epoch
	}
	c.Err, c.Degraded, c.Cached, c.At = nil, ratelimit.FailureDefault, true, 0
	c.Results[0] = ratelimit.Result{RetryAfter: d.retryAfter - elapsed, ResetAfter: d.resetAfter - elapsed}
	return true, epoch
}

// changes reports whether one of the charges before a hit may make its counter another one, by another limit. If they are
// many it is not worth a look.
func changes(before []ratelimit.Charge, hit *ratelimit.Hit) bool {
	for i := range before {
		for j := range before[i].Hits {
			if other := &before[i].Hits[j]; other.Limit != hit.Limit && other.Key == hit.Key {
				return true
			}
		}
	}
	return len(before) > fewCharges
}

// learn remembers what the store behind has denied. began is when it was asked.
func (s *Store) learn(charges []ratelimit.Charge, w *work, began time.Time) {
	for _, i := range w.origin {
		c := &charges[i]
		s.outdate(c)
		if len(c.Hits) != 1 || c.ID != "" || c.Hits[0].Cost == 0 || c.Err != nil || c.Degraded != ratelimit.FailureDefault ||
			c.Results[0].Allowed {
			continue
		}
		if valid := min(certain(&c.Hits[0], &c.Results[0]), s.options.MaxAge); valid > 0 {
			hit, result := &c.Hits[0], &c.Results[0]
			s.shard(hit.Key).remember(hit.Key, w.epochs[i], denial{
				limit: hit.Limit, cost: hit.Cost, at: began, valid: valid,
				retryAfter: result.RetryAfter, resetAfter: result.ResetAfter,
			})
		}
	}
}

// outdate forgets what was denied by other limits of the counters that have been charged: the limit by which a counter was
// charged last says how fast it drains, and overrides share the counters of the limits that they replace.
func (s *Store) outdate(c *ratelimit.Charge) {
	for i := range c.Hits {
		hit := &c.Hits[i]
		if c.Err != nil || c.Results[i].Granted > 0 {
			shard := s.shard(hit.Key)
			if d, _ := shard.find(hit.Key); d.limit != nil && d.limit != hit.Limit {
				shard.drop(hit.Key)
			}
		}
	}
}

// Reset resets the counters in the store behind.
func (s *Store) Reset(ctx context.Context, keys []string) error {
	err := s.behind.Reset(ctx, keys)
	for _, key := range keys {
		s.Drop(key)
	}
	return err
}

// Drop forgets a counter, because something was given back to it or it was reset, perhaps by another process. Answers of the
// store that were asked for before are not remembered.
func (s *Store) Drop(key string) { s.shard(key).drop(key) }

// Listening tells whether announcements of other processes' refunds and resets are heard. While they are not, nothing is
// answered here, and whenever that changes everything is forgotten.
func (s *Store) Listening(heard bool) {
	s.on.Store(false)
	for i := range s.shards {
		s.shards[i].clear()
	}
	s.on.Store(heard)
}

// Stats is how the cache is doing.
type Stats struct {
	Entries   int    // counters remembered
	Denied    uint64 // charges answered since the start
	Listening bool
}

// Stats returns the state of the cache.
func (s *Store) Stats() Stats {
	stats := Stats{Denied: s.answers.Load(), Listening: s.on.Load()}
	for i := range s.shards {
		stats.Entries += s.shards[i].len()
	}
	return stats
}

func (s *Store) shard(key string) *shard {
	return &s.shards[maphash.String(s.seed, key)%shards]
}
