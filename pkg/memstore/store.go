package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	defaultMaxKeys       = 1_000_000
	defaultMaxIDs        = 100_000
	defaultIDPeriod      = 5 * time.Minute
	defaultSweepInterval = 10 * time.Second

	maxShards = 64
	// minShardKeys keeps shards so large that hashes fill them evenly: what is least recently used in a shard is so, about,
	// in the store.
	minShardKeys = 1024
	// checkEvery is the number of charges after which Take looks whether its time is over.
	checkEvery = 64
)

// Options are a store's settings. The zero value is usable.
type Options struct {
	// MaxKeys bounds the keys. The index for all of them, 4 to 8 bytes each, is reserved at once. Defaults to 1,000,000.
	MaxKeys int
	// MaxIDs bounds how many results are remembered for charges with an ID. At the bound the oldest are forgotten, so that
	// a late repetition is charged again. Defaults to 100,000.
	MaxIDs int
	// IDPeriod is how long the ID of a charge is remembered. Defaults to 5 minutes.
	IDPeriod time.Duration
	// SweepInterval is the pause between two rounds through all keys in search of dead ones. Defaults to 10 seconds.
	SweepInterval time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.MaxKeys <= 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxIDs <= 0 {
		o.MaxIDs = defaultMaxIDs
	}
	if o.IDPeriod <= 0 {
		o.IDPeriod = defaultIDPeriod
	}
	if o.SweepInterval <= 0 {
		o.SweepInterval = defaultSweepInterval
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Store is a bounded engine.Store in memory. Create it with New.
type Store struct {
	now    func() time.Time
	seed   maphash.Seed
	shift  uint // hash >> shift is the number of the shard
	shards []shard
	usage  usage
	ids    ids
	groups sync.Pool // *group

	stop    chan struct{}
	close   sync.Once
	sweeper sync.WaitGroup
}

var _ engine.Store = (*Store)(nil)

// usage is what all shards together hold.
type usage struct {
	limit       int64
	weight      atomic.Int64 // keys, and the keys' worth of long logs
	keys        atomic.Int64
	evictions   atomic.Int64
	expirations atomic.Int64
}

// New returns an empty store. Close it to end its sweeper.
func New(options Options) *Store {
	o := options.withDefaults()
	n := 1
	for n < maxShards && o.MaxKeys/(2*n) >= minShardKeys {
		n *= 2
	}
	s := &Store{
		now:    o.Now,
		seed:   maphash.MakeSeed(),
		shift:  uint(64 - bits.TrailingZeros(uint(n))),
		shards: make([]shard, n),
		stop:   make(chan struct{}),
	}
	s.usage.limit = int64(o.MaxKeys)
	s.groups.New = func() any { return new(group) }
	s.ids.init(o.MaxIDs, o.IDPeriod, s.seed)
	for i := range s.shards {
		s.shards[i].init(&s.usage, (o.MaxKeys+n-1)/n)
	}
	s.sweeper.Go(func() { s.sweepEvery(o.SweepInterval) })
	return s
}

// Close ends the sweeper and waits for it. The store still works afterwards, but dead keys go only when room is needed.
// Close may be called more than once.
func (s *Store) Close() {
	s.close.Do(func() { close(s.stop) })
	s.sweeper.Wait()
}

// Stats is what a store holds now and what it has removed since its beginning.
type Stats struct {
	Keys        int64 // keys held, dead ones that were not yet removed among them
	Evictions   int64 // keys whose counters were lost to make room; they start anew
	Expirations int64 // dead keys removed, of which nothing was lost
	IDs         int64 // charges whose IDs are remembered
	IDEvictions int64 // IDs forgotten before their time to make room
}

// Stats reads the counters. It takes no lock and may be called at any rate.
func (s *Store) Stats() Stats {
	return Stats{
		Keys:        s.usage.keys.Load(),
		Evictions:   s.usage.evictions.Load(),
		Expirations: s.usage.expirations.Load(),
		IDs:         s.ids.held.Load(),
		IDEvictions: s.ids.evictions.Load(),
	}
}

// Len returns the number of keys held, dead ones that were not yet removed among them.
func (s *Store) Len() int { return int(s.usage.keys.Load()) }

// Take decides charges as engine.Store says. Charges that were not reached when ctx ended have its error.
func (s *Store) Take(ctx context.Context, charges []ratelimit.Charge) {
	now := s.now().UnixMicro()
	for i := range charges {
		if i%checkEvery == 0 {
			if err := ctx.Err(); err != nil {
				fail(charges[i:], err)
				return
			}
		}
		c := &charges[i]
		c.Err, c.Degraded, c.At = nil, ratelimit.FailureDefault, 0
		if c.ID == "" {
			s.decide(c, now)
		} else {
			s.ids.once(c, now, s)
		}
	}
}

func fail(charges []ratelimit.Charge, err error) {
	err = fmt.Errorf("memory store: not decided: %w", err)
	for i := range charges {
		charges[i].Err = err
	}
}

// Reset forgets keys as engine.Store says.
func (s *Store) Reset(ctx context.Context, keys []string) error {
	for i, key := range keys {
		if i%checkEvery == 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("memory store: %d of %d keys were reset: %w", i, len(keys), err)
			}
		}
		hash := maphash.String(s.seed, key)
		s.shard(hash).forget(key, hash)
	}
	return nil
}

func (s *Store) shard(hash uint64) *shard { return &s.shards[s.shardNumber(hash)] }

func (s *Store) shardNumber(hash uint64) int { return int(hash >> s.shift) }

// decide takes one charge, whatever its ID.
func (s *Store) decide(c *ratelimit.Charge, now int64) {
	switch len(c.Hits) {
	case 0:
	case 1:
		hash := maphash.String(s.seed, c.Hits[0].Key)
		s.shard(hash).take(c, hash, now)
	default:
		g := s.groups.Get().(*group)
		g.take(s, c, now)
		g.release(s)
	}
}

// lock locks shards by their numbers. Whoever locks several does it here, in ascending order, so nobody waits in a circle.
func (s *Store) lock(numbers []int) {
	slices.Sort(numbers)
	for i, n := range numbers {
		if i == 0 || n != numbers[i-1] {
			s.shards[n].mu.Lock()
		}
	}
}

// unlock unlocks what lock has locked.
func (s *Store) unlock(numbers []int) {
	for i, n := range numbers {
		if i == 0 || n != numbers[i-1] {
			s.shards[n].mu.Unlock()
		}
	}
}
