package pluginserver

import (
	"sync"
	"sync/atomic"
	"time"
)

// instance is one started instance: one for each config and nginx worker.
type instance struct {
	id      int32
	plugin  Instance
	started time.Time
	used    atomic.Int64 // Unix nanoseconds
	// holders counts the events under way, and one for the table while the instance is in it. The last one closes it.
	holders atomic.Int64
}

func (i *instance) release() {
	if i.holders.Add(-1) == 0 {
		i.plugin.Close()
	}
}

// instances are those that Kong may name. Numbers are never used twice, so that one of an earlier config meets nothing.
type instances struct {
	max    int
	mu     sync.RWMutex
	lastID int32
	byID   map[int32]*instance
}

func (t *instances) add(plugin Instance, now time.Time) *instance {
	i := &instance{plugin: plugin, started: now}
	i.used.Store(now.UnixNano())
	i.holders.Store(1)
	t.mu.Lock()
	var evicted *instance
	if len(t.byID) >= t.max {
		evicted = t.leastUsed()
		delete(t.byID, evicted.id)
	}
	for {
		if t.lastID++; t.lastID <= 0 {
			t.lastID = 1
		}
		if t.byID[t.lastID] == nil {
			break
		}
	}
	i.id = t.lastID
	t.byID[i.id] = i
	t.mu.Unlock()
	if evicted != nil {
		evicted.release()
	}
	return i
}

func (t *instances) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byID)
}

// acquire returns an instance that the caller releases, or nil.
func (t *instances) acquire(id int32, now time.Time) *instance {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i := t.byID[id]
	if i != nil {
		i.holders.Add(1) // at least the table's own is there, so it has not been closed
		i.used.Store(now.UnixNano())
	}
	return i
}

// remove takes an instance out of the table, to be closed when its events have ended; nil if it is not there.
func (t *instances) remove(id int32) *instance {
	t.mu.Lock()
	i := t.byID[id]
	delete(t.byID, id)
	t.mu.Unlock()
	if i != nil {
		i.release()
	}
	return i
}

// expire removes what was last used before a time.
func (t *instances) expire(before time.Time) {
	var expired []*instance
	t.mu.Lock()
	for id, i := range t.byID {
		if i.used.Load() < before.UnixNano() {
			expired = append(expired, i)
			delete(t.byID, id)
		}
	}
	t.mu.Unlock()
	for _, i := range expired {
		i.release()
	}
}

func (t *instances) closeAll() {
	t.mu.Lock()
	all := t.byID
	t.byID = make(map[int32]*instance)
	t.mu.Unlock()
	for _, i := range all {
		i.release()
	}
}

func (t *instances) leastUsed() *instance {
	var least *instance
	for _, i := range t.byID {
		if least == nil || i.used.Load() < least.used.Load() {
			least = i
		}
	}
	return least
}
