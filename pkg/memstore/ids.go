package memstore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	idShards = 16
	// idBatch is how many forgotten IDs are removed while a lock is held.
	idBatch = 128
)

// ids remembers the results of charges that carry an ID, for a time and up to a number of results.
type ids struct {
	seed      maphash.Seed
	period    int64
	shards    [idShards]idShard
	held      atomic.Int64
	evictions atomic.Int64
}

// idShard is the part of the IDs whose digests begin alike.
type idShard struct {
	mu      sync.Mutex
	records map[digest]record
	order   []due // by time of the charge, and so of being forgotten
	held    int   // results, in all records
	limit   int
}

// digest stands for an ID, of which a client chooses length and bytes.
type digest [sha256.Size]byte

type record struct {
	hits    uint64 // hash of what was charged
	results []ratelimit.Result
	expires int64
}

// weight is how much of the limit on results a record takes.
func (r record) weight() int { return max(len(r.results), 1) }

// due says when an ID is forgotten.
type due struct {
	id      digest
	expires int64
}

func (d *ids) init(limit int, period time.Duration, seed maphash.Seed) {
	d.seed, d.period = seed, period.Microseconds()
	for i := range d.shards {
		d.shards[i].records = make(map[digest]record)
		d.shards[i].limit = max(limit/idShards, 1)
	}
}

// once decides a charge unless one with its ID was decided before, whose results it repeats. The lock is held until then,
// so that a second charge with this ID which comes meanwhile waits for the results.
func (d *ids) once(c *ratelimit.Charge, now int64, store *Store) {
	id := digest(sha256.Sum256(unsafe.Slice(unsafe.StringData(c.ID), len(c.ID))))
	hits := d.hash(c.Hits)
	s := &d.shards[id[0]%idShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	d.forget(s, now, idBatch)
	if r, found := s.records[id]; found && now < r.expires {
		if r.hits != hits {
			c.Err = fmt.Errorf("memory store: %w", ratelimit.ErrConflict)
			return
		}
		copy(c.Results, r.results)
		c.At = r.expires - d.period
		return
	}
	store.decide(c, now)
	c.At = now
	d.remember(s, id, record{hits: hits, results: slices.Clone(c.Results), expires: now + d.period})
}

// hash tells charges apart that are not the same: by keys, costs and order, not by limits, which a reload may have changed
// between two tries.
func (d *ids) hash(hits []ratelimit.Hit) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	for i := range hits {
		hit := &hits[i]
		var fixed [17]byte
		binary.LittleEndian.PutUint64(fixed[0:], uint64(len(hit.Key)))
		binary.LittleEndian.PutUint64(fixed[8:], uint64(hit.Cost))
		if hit.Partial {
			fixed[16] = 1
		}
		_, _ = h.Write(fixed[:])
		_, _ = h.WriteString(hit.Key)
	}
	return h.Sum64()
}

// remember keeps a record, in place of the oldest ones if there are too many results.
func (d *ids) remember(s *idShard, id digest, r record) {
	if old, found := s.records[id]; found {
		d.remove(s, id, old)
	}
	for len(s.order) > 0 && s.held+r.weight() > s.limit {
		if d.removeOldest(s) {
			d.evictions.Add(1)
		}
	}
	s.records[id] = r
	s.order = append(s.order, due{id: id, expires: r.expires})
	s.held += r.weight()
	d.held.Add(1)
}

// forget removes up to n records whose time is over.
func (d *ids) forget(s *idShard, now int64, n int) {
	for range n {
		if len(s.order) == 0 || s.order[0].expires > now {
			return
		}
		d.removeOldest(s)
	}
}

// removeOldest takes the first element from the order, and reports whether its record was still there.
func (d *ids) removeOldest(s *idShard) bool {
	oldest := s.order[0]
	s.order = s.order[1:]
	r, found := s.records[oldest.id]
	if !found || r.expires != oldest.expires {
		return false
	}
	d.remove(s, oldest.id, r)
	return true
}

func (d *ids) remove(s *idShard, id digest, r record) {
	delete(s.records, id)
	s.held -= r.weight()
	d.held.Add(-1)
}

// sweep removes the records whose time is over, a batch at a time.
func (d *ids) sweep(now int64) {
	for i := range d.shards {
		s := &d.shards[i]
		for more := true; more; {
			s.mu.Lock()
			d.forget(s, now, idBatch)
			more = len(s.order) > 0 && s.order[0].expires <= now
			s.mu.Unlock()
			runtime.Gosched()
		}
	}
}
