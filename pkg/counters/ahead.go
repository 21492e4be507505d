package counters

import (
	"sync"

	"github.com/weirhq/weir/pkg/denycache"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/lease"
	"github.com/weirhq/weir/pkg/redisstore"
)

// ahead puts what answers without Redis before the guards: denials of counters that are known to be over their limit, and
// before them hits of leases. Both must hear what other processes give back or reset. Further wrappers of this kind go here.
func (s *Store) ahead(store engine.Store, o *Options) engine.Store {
	var listeners []redisstore.Listener
	if o.DenyCache > 0 {
		s.DenyCache = denycache.New(store, denycache.Options{Entries: o.DenyCache})
		store, listeners = s.DenyCache, append(listeners, s.DenyCache)
	}
	if o.Leases {
		s.Leases = lease.New(store, lease.Options{})
		store, listeners = s.Leases, append(listeners, s.Leases)
	}
	if len(listeners) == 0 {
		return store
	}
	all := &ears{heard: make([]bool, len(s.Servers)), listeners: listeners}
	for i, server := range s.Servers {
		s.closers = append(s.closers, server.redis.Listen(ear{all, i}))
	}
	return store
}

// ears joins what is heard of several servers: announcements are missed as soon as those of one are.
type ears struct {
	mu        sync.Mutex
	heard     []bool
	listeners []redisstore.Listener
}

// ear listens to one server.
type ear struct {
	all   *ears
	index int
}

var _ redisstore.Listener = ear{}

// Drop passes on that a counter was given something back, or was reset.
func (e ear) Drop(key string) {
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	for _, l := range e.all.listeners {
		l.Drop(key)
	}
}

// Listening passes on whether all servers are heard. A change of one means that something may have been missed.
func (e ear) Listening(heard bool) {
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	e.all.heard[e.index] = heard
	all := true
	for _, one := range e.all.heard {
		all = all && one
	}
	for _, l := range e.all.listeners {
		l.Listening(all)
	}
}
