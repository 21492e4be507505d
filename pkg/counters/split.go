package counters

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// split keeps the counters of windows of one second in a store of their own. A counter is always in the same one, whatever it
// is charged together with.
//
// A charge that has hits in both stores is made in two steps, because two servers decide nothing together: first its windows of
// one second, and the others only if those allow it. If the others deny it, its hits in the former stay counted, for at most
// the rest of that second or so. Nothing is given back then, for it could land in the next window and allow a hit too many.
type split struct {
	main, perSecond engine.Store
	works           sync.Pool // of *parts
}

// second reports whether a limit's counters are in the store for windows of one second.
func second(limit *ratelimit.Limit) bool {
	return limit.Window == time.Second && limit.Calendar == ratelimit.CalendarNone
}

// place is where a charge's counters are.
type place uint8

const (
	inMain place = 1 << iota
	inPerSecond
	inBoth = inMain | inPerSecond
)

func placeOf(c *ratelimit.Charge) place {
	var where place
	for i := range c.Hits {
		if second(c.Hits[i].Limit) {
			where |= inPerSecond
		} else {
			where |= inMain
		}
	}
	return where
}

// Take decides the charges, as engine.Store says.
func (s *split) Take(ctx context.Context, charges []ratelimit.Charge) {
	var where place
	mixed := false
	for i := range charges {
		at := placeOf(&charges[i])
		where |= at
		mixed = mixed || at == inBoth
	}
	switch {
	case where != inBoth && where&inPerSecond == 0:
		s.main.Take(ctx, charges)
	case where == inPerSecond:
		s.perSecond.Take(ctx, charges)
	case !engine.Waiting(ctx): // asked here, because the stores are asked at the same time
		for i := range charges {
			charges[i].Err = engine.ErrPostponed
		}
	case !mixed:
		s.takeParts(ctx, charges)
	default:
		s.takeInOrder(ctx, charges)
	}
}

// parts are charges by their store.
type parts struct {
	main, perSecond part
}

type part struct {
	charges []ratelimit.Charge
	origin  []int // their places among the caller's
}

const keepCharges = 1 << 10

func (p *part) add(c *ratelimit.Charge, at int) {
	p.charges, p.origin = append(p.charges, *c), append(p.origin, at)
}

func (p *part) deliver(to []ratelimit.Charge) {
	for i, at := range p.origin {
		to[at] = p.charges[i]
	}
	clear(p.charges)
	p.charges, p.origin = p.charges[:0], p.origin[:0]
}

// takeParts asks both stores at the same time. No charge has hits in both.
func (s *split) takeParts(ctx context.Context, charges []ratelimit.Charge) {
	w, ok := s.works.Get().(*parts)
	if !ok {
		w = new(parts)
	}
	for i := range charges {
		if placeOf(&charges[i]) == inPerSecond {
			w.perSecond.add(&charges[i], i)
		} else {
			w.main.add(&charges[i], i)
		}
	}
	var group sync.WaitGroup
	group.Go(func() { s.perSecond.Take(ctx, w.perSecond.charges) })
	s.main.Take(ctx, w.main.charges)
	group.Wait()
	w.main.deliver(charges)
	w.perSecond.deliver(charges)
	if cap(w.main.charges) <= keepCharges && cap(w.perSecond.charges) <= keepCharges {
		s.works.Put(w)
	}
}

// takeInOrder decides charges one run after the other: those that share a key are decided in their order.
func (s *split) takeInOrder(ctx context.Context, charges []ratelimit.Charge) {
	for len(charges) > 0 {
		n := 0
		for n < len(charges) && placeOf(&charges[n]) != inBoth {
			n++
		}
		if n > 0 {
			s.takeParts(ctx, charges[:n])
		}
		if n < len(charges) {
			s.takeBoth(ctx, &charges[n])
			n++
		}
		charges = charges[n:]
	}
}

// takeBoth decides a charge that has hits in both stores.
func (s *split) takeBoth(ctx context.Context, c *ratelimit.Charge) {
	first, firstOrigin := half(c, true)
	rest, restOrigin := half(c, false)
	s.perSecond.Take(ctx, first[:])
	allowed := first[0].Err == nil
	for i := range first[0].Results {
		allowed = allowed && first[0].Results[i].Allowed
	}
	if first[0].Err == nil {
		if !allowed {
			look(&rest[0])
		}
		s.main.Take(ctx, rest[:])
	}
	c.Err, c.Degraded, c.Cached, c.At = first[0].Err, first[0].Degraded, false, first[0].At
	if c.Err == nil {
		c.Err = rest[0].Err
	}
	if c.Err != nil {
		return
	}
	if c.Degraded == ratelimit.FailureDefault {
		c.Degraded = rest[0].Degraded
	}
	if rest[0].At > 0 {
		c.At = rest[0].At
	}
	for i, at := range firstOrigin {
		c.Results[at] = first[0].Results[i]
	}
	for i, at := range restOrigin {
		result := &rest[0].Results[i]
		if !allowed {
			cost := c.Hits[at].Cost
			result.Allowed, result.Granted = result.Allowed && result.Remaining >= cost, 0
		}
		allowed = allowed && result.Allowed
		c.Results[at] = *result
	}
	if !allowed {
		for i := range c.Hits {
			c.Results[i].Granted = 0
		}
	}
}

// half returns the part of a charge that one store decides, and the places of its hits.
func half(c *ratelimit.Charge, perSecond bool) (charge [1]ratelimit.Charge, origin []int) {
	charge[0] = ratelimit.Charge{ID: c.ID, Cancelled: c.Cancelled, OnFailure: c.OnFailure}
	for i := range c.Hits {
		if second(c.Hits[i].Limit) == perSecond {
			hit := c.Hits[i]
			hit.Partial = false // it is not alone
			charge[0].Hits, origin = append(charge[0].Hits, hit), append(origin, i)
		}
	}
	charge[0].Results = make([]ratelimit.Result, len(origin))
	return charge, origin
}

// look makes a charge that counts nothing.
func look(c *ratelimit.Charge) {
	c.ID = ""
	for i := range c.Hits {
		c.Hits[i].Cost = 0
	}
}

// Reset makes the keys as never used, in both stores: a key does not tell its window.
func (s *split) Reset(ctx context.Context, keys []string) error {
	return errors.Join(s.main.Reset(ctx, keys), s.perSecond.Reset(ctx, keys))
}
