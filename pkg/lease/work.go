package lease

import (
	"slices"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// keepCharges bounds the memory that is kept for the next call.
const keepCharges = 1 << 10

// work is what a call of Take needs besides its charges.
type work struct {
	rest    []ratelimit.Charge // what the store behind is asked for
	parts   []part             // what each of rest is
	hits    []ratelimit.Hit    // of those of rest that are not the caller's
	results []ratelimit.Result
}

// part says what an element of work.rest is for: charge number at of the caller's, or a lease.
type part struct {
	at      int // lease: the charge that caused it
	lease   bool
	counter *counter // nil: nobody wants to know
	shard   *shard
	epoch   uint64
	landing chan struct{} // lease: counter.landing, until it has landed
	// own is what a lease has given to the charge, whose rest the store is asked for.
	own grant
}

// room makes sure that the slices do not move while charges, of which there are n, are added.
func (w *work) room(n int) {
	w.hits, w.results = slices.Grow(w.hits, 2*n), slices.Grow(w.results, n)
}

// pass leaves a charge to the store behind.
func (w *work) pass(c *ratelimit.Charge, p part) {
	w.rest, w.parts = append(w.rest, *c), append(w.parts, p)
}

// passRest asks the store for what the counter's lease lacks.
func (w *work) passRest(c *ratelimit.Charge, p part) {
	hit := c.Hits[0]
	hit.Cost -= p.own.left
	w.hits = append(w.hits, hit)
	w.pass(c, p)
	w.rest[len(w.rest)-1].Hits = w.hits[len(w.hits)-1:]
}

// take asks for a lease of n hits. It is for nobody, so while the store cannot decide it does not matter what is answered.
func (w *work) take(c *ratelimit.Charge, p part, n int64) {
	hit := c.Hits[0]
	hit.Cost, hit.Partial = n, true
	p.lease, p.own, p.landing = true, grant{}, p.counter.landing
	w.hits, w.results = append(w.hits, hit), append(w.results, ratelimit.Result{})
	w.rest = append(w.rest, ratelimit.Charge{
		Hits: w.hits[len(w.hits)-1:], Results: w.results[len(w.results)-1:], OnFailure: ratelimit.FailOpen,
	})
	w.parts = append(w.parts, p)
}

// land tells those who wait for leases that they wait in vain, if a panic has kept them from arriving.
func (w *work) land() {
	for i := range w.parts {
		w.parts[i].land()
	}
}

func (p *part) land() {
	if p.landing != nil {
		close(p.landing)
		p.landing = nil
	}
}

// emptied returns w without what it knows of its callers, or nil if it is too large to keep.
func (w *work) emptied() *work {
	if cap(w.rest) > keepCharges {
		return nil
	}
	clear(w.rest)
	clear(w.parts)
	clear(w.hits)
	w.rest, w.parts, w.hits, w.results = w.rest[:0], w.parts[:0], w.hits[:0], w.results[:0]
	return w
}
