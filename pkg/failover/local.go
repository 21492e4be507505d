package failover

import (
	"context"
	"sync"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// local decides charges in this process at a fraction of their limits.
type local struct {
	store    engine.Store
	fraction float64
	limits   scaledLimits
	batches  sync.Pool // of *localBatch
}

// localBatch holds copies of charges and hits: the caller's hits keep their limits, and a charge that is not for the local
// store is not shown to it.
type localBatch struct {
	charges []ratelimit.Charge
	hits    []ratelimit.Hit
	origin  []int // of each of charges, among the caller's
}

// maxKept bounds the charges and hits for which a batch's memory is kept.
const maxKept = 4 << 10

// answerLocally decides those failed charges whose mode is FailLocal, of which there are n.
func (s *Store) answerLocally(charges []ratelimit.Charge, n int) {
	batch, ok := s.local.batches.Get().(*localBatch)
	if !ok {
		batch = &localBatch{}
	}
	s.collect(batch, charges, n)
	// The local store is this process's memory: neither the caller's deadline nor its haste matters any more.
	s.takeLocally(context.Background(), batch.charges)
	for i, at := range batch.origin {
		c := &charges[at]
		switch err := batch.charges[i].Err; {
		case err == nil:
			c.Err, c.Degraded, c.At = nil, ratelimit.FailLocal, batch.charges[i].At
		case !answerable(err):
			c.Err = err
		case s.options.Mode == ratelimit.FailClosed:
			answerAlone(c, ratelimit.FailClosed)
		default:
			answerAlone(c, ratelimit.FailOpen)
		}
	}
	batch.release(&s.local.batches)
}

// takeLocally fails all charges if the local store panics.
func (s *Store) takeLocally(ctx context.Context, charges []ratelimit.Charge) {
	defer s.recovered(charges)
	s.local.store.Take(ctx, charges)
}

// collect copies the n failed charges whose mode is FailLocal into batch, with smaller limits.
func (s *Store) collect(batch *localBatch, charges []ratelimit.Charge, n int) {
	hits := 0
	for i := range charges {
		hits += len(charges[i].Hits)
	}
	// Grown at once: the charges' hits are slices of one array that must not move.
	if cap(batch.hits) < hits {
		batch.hits = make([]ratelimit.Hit, 0, hits)
	}
	if cap(batch.charges) < n {
		batch.charges, batch.origin = make([]ratelimit.Charge, 0, n), make([]int, 0, n)
	}
	for i := range charges {
		c := &charges[i]
		if !answerable(c.Err) || s.mode(c) != ratelimit.FailLocal {
			continue
		}
		first := len(batch.hits)
		for _, hit := range c.Hits {
			hit.Limit = s.local.limits.scaled(hit.Limit, s.local.fraction)
			batch.hits = append(batch.hits, hit)
		}
		batch.charges = append(batch.charges, ratelimit.Charge{ID: c.ID, Hits: batch.hits[first:len(batch.hits):len(batch.hits)], Results: c.Results})
		batch.origin = append(batch.origin, i)
	}
}

// release gives the batch's memory back without the caller's in it.
func (b *localBatch) release(pool *sync.Pool) {
	if cap(b.hits) > maxKept || cap(b.charges) > maxKept {
		return
	}
	clear(b.hits)
	clear(b.charges)
	b.hits, b.charges, b.origin = b.hits[:0], b.charges[:0], b.origin[:0]
	pool.Put(b)
}
