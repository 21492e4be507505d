package lease

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// soon is when a hit may come again that was denied only because its lease ended meanwhile.
const soon = time.Millisecond

// DefaultCounters is how many counters are cared for if Options.Counters is 0.
const DefaultCounters = 16 << 10

// Options are a Store's settings. The zero value is usable.
type Options struct {
	// Counters is how many busy counters have leases at most, of about 250 bytes and their keys. Others are asked for one by
	// one. 0: DefaultCounters.
	Counters int
	// Now, if not nil, is the clock, for tests. It may step.
	Now func() time.Time
}

// Store hands out hits of leases, and leaves everything else to the store behind it. It is off until Listening. Safe for
// concurrent use.
type Store struct {
	behind engine.Store
	now    func() time.Time
	on     atomic.Bool
	seed   maphash.Seed
	shards [shards]shard
	works  sync.Pool // of *work
	tally  tally
	cares  atomic.Bool // for any counter, perhaps
}

// tally counts hits.
type tally struct{ taken, spent, lost atomic.Uint64 }

var _ engine.Store = (*Store)(nil)

// New returns a Store before another one, which must be the way to the counters that all replicas share.
func New(behind engine.Store, options Options) *Store {
	if options.Counters <= 0 {
		options.Counters = DefaultCounters
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	s := &Store{behind: behind, now: options.Now, seed: maphash.MakeSeed()}
	s.works.New = func() any { return new(work) }
	for i := range s.shards {
		s.shards[i].most, s.shards[i].store = max(1, options.Counters/shards), s
	}
	return s
}

// Take decides the charges, as engine.Store says. What is handed out of a lease is told as remaining what the lease still has
// and what the store had when the lease was taken.
func (s *Store) Take(ctx context.Context, charges []ratelimit.Charge) {
	first := 0
	for first < len(charges) && !leasable(&charges[first]) {
		first++
	}
	if first == len(charges) || !s.on.Load() {
		s.behind.Take(ctx, charges)
		s.dropRefunded(charges)
		return
	}
	w := s.works.Get().(*work)
	w.room(len(charges))
	now := s.now()
	spent := uint64(0)
	for i := range charges {
		c := &charges[i]
		if i < first || !leasable(c) {
			w.pass(c, part{at: i})
		} else if s.serve(w, c, i, now) {
			spent += uint64(c.Hits[0].Cost)
		}
	}
	if len(w.rest) > 0 {
		spent += s.ask(ctx, w, charges, now)
		s.dropRefunded(charges)
	}
	if spent > 0 {
		s.tally.spent.Add(spent)
	}
	if w = w.emptied(); w != nil {
		s.works.Put(w)
	}
}

// ask has the store behind decide what is left to it, and settles that.
func (s *Store) ask(ctx context.Context, w *work, charges []ratelimit.Charge, now time.Time) (spent uint64) {
	defer w.land()
	s.behind.Take(ctx, w.rest)
	return s.settle(ctx, w, charges, now)
}

// leasable reports whether a charge may be answered from a lease, or adds to how busy its counter is.
func leasable(c *ratelimit.Charge) bool {
	return len(c.Hits) == 1 && c.Hits[0].Limit.Lease.Max > 0 && c.ID == "" && c.Hits[0].Cost >= 0 && len(c.Results) > 0
}

// dropRefunded ends the leases of counters that were given something back: who gives back more than was used must not find that
// what is held here still comes on top.
func (s *Store) dropRefunded(charges []ratelimit.Charge) {
	for i := range charges {
		for j := range charges[i].Hits {
			if hit := &charges[i].Hits[j]; hit.Cost < 0 && hit.Limit.Lease.Max > 0 {
				s.Drop(hit.Key)
			}
		}
	}
}

// serve answers a charge from a lease, or leaves it to the store behind, in whole or in part, and with it a new lease.
func (s *Store) serve(w *work, c *ratelimit.Charge, at int, now time.Time) (served bool) {
	hit := &c.Hits[0]
	hash := maphash.String(s.seed, hit.Key)
	shard := &s.shards[hash%shards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	counter := shard.counters[hit.Key]
	if counter == nil {
		if hit.Cost > 0 && shard.heat.hit(hash, period(hit.Limit, now)) {
			counter = shard.add(hit.Key, hit.Limit, now)
		}
		w.pass(c, part{at: at, counter: counter, shard: shard})
		return false
	}
	if counter.limit != hit.Limit {
		shard.end(counter)
		counter.epoch++
		counter.limit, counter.known, counter.size = hit.Limit, false, 0
	}
	now = s.time(counter, now)
	if !counter.held.good(now) {
		shard.end(counter)
	}
	p := part{at: at, counter: counter, shard: shard, epoch: counter.epoch}
	if hit.Cost == 0 {
		w.pass(c, p)
		return false
	}
	counter.count(period(hit.Limit, now), hit.Cost)
	if counter.spend(hit.Cost, now, &c.Results[0]) {
		c.Err, c.Degraded, c.At = nil, ratelimit.FailureDefault, 0
		return true
	}
	if counter.held.left > 0 {
		p.own, counter.held = counter.held, grant{}
		w.passRest(c, p)
	} else {
		w.pass(c, p)
	}
	if n := counter.want(now); n > 0 {
		counter.asked, counter.landing = now, make(chan struct{})
		w.take(c, p, n)
	}
	return false
}

// time is now for a counter. If its lease began later than now, another caller took it since this one has looked at the clock;
// if it did so by the clock of this instant, too, the clock has stepped back.
func (s *Store) time(c *counter, now time.Time) time.Time {
	if now.Before(c.held.began) {
		return s.now()
	}
	return now
}

// settle gives each charge what came of it, and each counter what the store said of it. It returns how many hits of leases were
// spent. began is when the store was asked.
func (s *Store) settle(ctx context.Context, w *work, charges []ratelimit.Charge, began time.Time) (spent uint64) {
	now := s.now()
	again, away := false, false
	for i := range w.rest {
		p, from := &w.parts[i], &w.rest[i]
		decided := from.Err == nil && from.Degraded == ratelimit.FailureDefault
		away = away || !decided && gone(ctx, from)
		if p.lease {
			p.arrived(from, began, now, decided)
			continue
		}
		to := &charges[p.at]
		to.Err, to.Degraded, to.At = from.Err, from.Degraded, from.At
		if p.counter == nil || from.Err != nil && p.own.left == 0 {
			continue
		}
		spent += p.answered(to, now, decided)
		again = again || decided && !to.Results[0].Allowed && to.Results[0].Granted == 0
	}
	if away {
		s.clear()
	} else if again {
		spent += w.again(ctx, charges, now)
	}
	return spent
}

// gone reports whether an answer that the store did not give says that it is away, and not only that a caller has left.
func gone(ctx context.Context, c *ratelimit.Charge) bool {
	if c.Degraded != ratelimit.FailureDefault {
		return true
	}
	return ctx.Err() == nil && !ratelimit.CallersOwn(c.Err) && !errors.Is(c.Err, engine.ErrPostponed)
}

// current reports whether what the store said is still of use to the counter. The shard's mu is held.
func (p *part) current(key string) bool {
	return p.counter.epoch == p.epoch && p.shard.counters[key] == p.counter
}

// arrived takes in a lease.
func (p *part) arrived(from *ratelimit.Charge, began, now time.Time, decided bool) {
	hit, result := &from.Hits[0], &from.Results[0]
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	now = p.shard.store.time(p.counter, now)
	p.counter.asked = time.Time{}
	if p.counter.landing == p.landing {
		p.counter.landing = nil
	}
	defer p.land()
	if !decided {
		return
	}
	tally := &p.shard.store.tally
	tally.taken.Add(uint64(result.Granted))
	if !p.current(hit.Key) {
		tally.lost.Add(uint64(result.Granted))
		return
	}
	if !p.counter.held.good(now) {
		p.shard.end(p.counter)
	}
	p.counter.receive(hit.Cost, began, result)
}

// answered adds to a charge's result what the lease has to do with it, and returns how many of its hits were spent.
func (p *part) answered(to *ratelimit.Charge, now time.Time, decided bool) (spent uint64) {
	hit, result := &to.Hits[0], &to.Results[0]
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	now = p.shard.store.time(p.counter, now)
	current := p.current(hit.Key)
	if decided && current {
		p.counter.learn(result)
	}
	switch {
	case hit.Cost == 0:
		if held := &p.counter.held; decided && current && held.left > 0 && held.good(now) {
			result.Allowed, result.RetryAfter = true, 0
			result.Remaining = p.counter.left(result.Remaining)
		}
		return 0
	case p.own.left == 0:
		return 0
	case !p.own.good(now):
		// Its time went by while the store was asked. What the store has charged is lost with it.
		if to.Err == nil && result.Allowed && decided {
			*result = ratelimit.Result{Remaining: result.Remaining, RetryAfter: soon, ResetAfter: result.ResetAfter}
		}
	case to.Err == nil && (result.Allowed || decided && hit.Partial):
		result.Granted += p.own.left
		return uint64(p.own.left)
	case current:
		if !p.counter.held.good(now) {
			p.shard.end(p.counter)
		}
		p.counter.held.join(&p.own)
		return 0
	}
	p.shard.store.tally.lost.Add(uint64(p.own.left))
	return 0
}

// again answers what the store has denied because a lease has taken it, which has arrived meanwhile or is about to.
func (w *work) again(ctx context.Context, charges []ratelimit.Charge, now time.Time) (spent uint64) {
	for i := range w.parts {
		p, to := &w.parts[i], &charges[w.parts[i].at]
		if p.lease || p.counter == nil || w.rest[i].Err != nil || w.rest[i].Degraded != ratelimit.FailureDefault {
			continue
		}
		hit, result := &to.Hits[0], &to.Results[0]
		if hit.Cost == 0 || result.Allowed || result.Granted != 0 {
			continue
		}
		if p.spend(ctx, hit, now, result) {
			spent += uint64(hit.Cost)
		}
	}
	return spent
}

// spend answers a hit from the counter's lease. If that has too little it waits for one that another caller has asked for: what
// the store lacks may be there. The caller's own leases have arrived, so that callers do not wait for each other.
func (p *part) spend(ctx context.Context, hit *ratelimit.Hit, now time.Time, result *ratelimit.Result) bool {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	var waited chan struct{}
	for p.current(hit.Key) {
		now = p.shard.store.time(p.counter, now)
		if p.counter.held.good(now) && p.counter.spend(hit.Cost, now, result) {
			return true
		}
		landing := p.counter.landing
		if landing == nil || landing == waited {
			return false
		}
		p.shard.mu.Unlock()
		select {
		case <-landing:
		case <-ctx.Done():
		}
		p.shard.mu.Lock()
		if ctx.Err() != nil {
			return false
		}
		waited, now = landing, p.shard.store.now()
	}
	return false
}

// Reset resets the counters in the store behind, and ends their leases.
func (s *Store) Reset(ctx context.Context, keys []string) error {
	err := s.behind.Reset(ctx, keys)
	for _, key := range keys {
		s.Drop(key)
	}
	return err
}

// Drop ends a counter's lease, because the counter was reset or given something back, perhaps by another process.
func (s *Store) Drop(key string) {
	s.shards[maphash.String(s.seed, key)%shards].drop(key)
}

// Listening tells whether announcements of other processes' resets are heard. While they are not, nothing is taken ahead, and
// whenever that changes all leases end.
func (s *Store) Listening(heard bool) {
	s.on.Store(false)
	s.clear()
	s.on.Store(heard)
}

func (s *Store) clear() {
	if !s.cares.Swap(false) {
		return
	}
	for i := range s.shards {
		s.shards[i].clear()
	}
}

// Stats is how the leases are doing.
type Stats struct {
	Counters int   // busy counters that are cared for
	Leases   int   // of these, those that hold hits
	Held     int64 // hits that are held
	// Since the start: hits that were taken ahead, those of them that were handed out, and those that were not and are lost.
	Taken, Spent, Lost uint64
	Listening          bool
}

// Stats returns the state of the leases. It looks at all of them, which takes each shard's lock for some microseconds.
func (s *Store) Stats() Stats {
	stats := Stats{Taken: s.tally.taken.Load(), Spent: s.tally.spent.Load(), Lost: s.tally.lost.Load(), Listening: s.on.Load()}
	now := s.now()
	for i := range s.shards {
		stats.add(&s.shards[i], now)
	}
	return stats
}

func (stats *Stats) add(s *shard, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats.Counters += len(s.counters)
	for _, c := range s.counters {
		if c.held.left > 0 && c.held.good(now) {
			stats.Leases++
			stats.Held += c.held.left
		}
	}
}
