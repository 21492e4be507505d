package redisstore

import (
	"sync"
	"time"
)

// flight is one round trip to a server with the calls that share it.
type flight struct {
	calls    []*call
	requests []*request          // one; in a Cluster one for each descriptor
	bySlot   map[string]*request // in a Cluster, by the part of the keys in braces
	bound    bound
	now      time.Time
	micros   int64
}

// run sends the calls' charges and waits for what comes of them, by the leader's deadline. Once the flight has begun others
// ride along, so the end of the leader's context alone is no reason to turn back. If nothing is left to send, nothing is sent.
func (f *flight) run(l *lane, leader *call) {
	s := l.store
	var skip *call
	if leader.ctx.Err() != nil {
		leader.refuse(leader.left())
		if len(f.calls) == 1 {
			return
		}
		skip = leader
	}
	f.bound.begin(leader.deadline)
	defer f.bound.end()
	f.load(l, skip)
	if len(f.requests) == 0 {
		return
	}
	for _, r := range f.requests {
		r.pack(f.clock(s), &s.options)
	}
	if l.node != nil {
		s.runNode(&f.bound, l.node, f.requests)
	} else {
		s.runServer(&f.bound, f.requests[0])
	}
}

// load makes requests of the calls' charges, in their order, but for those that are left out, and for all of skip's.
func (f *flight) load(l *lane, skip *call) {
	f.now = l.store.now()
	for _, c := range f.calls {
		if c == skip {
			continue
		}
		for i := range c.charges {
			if charge := &c.charges[i]; !charge.leftOut {
				f.request(l, charge).add(charge, f.now)
			}
		}
	}
}

// request returns the one that a charge belongs to. A script must keep to one slot of a Cluster.
func (f *flight) request(l *lane, c *charge) *request {
	if l.node == nil {
		if len(f.requests) == 0 {
			f.requests = append(f.requests, l.store.requests.get(&l.store.options))
		}
		return f.requests[0]
	}
	slot := slotOf(&c.hits[0], f.now)
	r := f.bySlot[slot]
	if r == nil {
		if f.bySlot == nil {
			f.bySlot = make(map[string]*request)
		}
		r = l.store.requests.get(&l.store.options)
		f.bySlot[slot] = r
		f.requests = append(f.requests, r)
	}
	return r
}

// clock is the time that Redis is told, nil if it uses its own.
func (f *flight) clock(s *Store) *int64 {
	if s.options.Now == nil {
		return nil
	}
	f.micros = f.now.UnixMicro()
	return &f.micros
}

// flights are kept to be used again.
type flights struct{ pool sync.Pool }

func (p *flights) get() *flight {
	if f, ok := p.pool.Get().(*flight); ok {
		return f
	}
	return new(flight)
}

func (p *flights) put(f *flight, requests *requests) {
	for _, r := range f.requests {
		requests.put(r)
	}
	clear(f.calls)
	clear(f.requests)
	clear(f.bySlot)
	f.calls, f.requests = f.calls[:0], f.requests[:0]
	p.pool.Put(f)
}

// requests are kept to be used again.
type requests struct{ pool sync.Pool }

func (p *requests) get(o *Options) *request {
	r, ok := p.pool.Get().(*request)
	if !ok {
		r = new(request)
	}
	r.envoy = o.envoy()
	return r
}

func (p *requests) put(r *request) {
	r.reset()
	p.pool.Put(r)
}
