package memstore

import (
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// filler writes keys of about 30 bytes into memory that it uses again.
type filler struct {
	scratch []byte
	charges []ratelimit.Charge
}

func newFiller(l *ratelimit.Limit) *filler {
	return &filler{charges: []ratelimit.Charge{{
		Hits: []ratelimit.Hit{{Limit: l, Cost: 1}}, Results: make([]ratelimit.Result, 1),
	}}}
}

// key returns "ratelimit:user:user-0001234567:60", valid until the next call.
func (f *filler) key(i int) string {
	f.scratch = append(f.scratch[:0], "ratelimit:user:user-"...)
	f.scratch = strconv.AppendInt(f.scratch, int64(1_000_000_000+i), 10)
	f.scratch = append(f.scratch, ":60"...)
	return unsafe.String(unsafe.SliceData(f.scratch), len(f.scratch))
}

func (f *filler) fill(t testing.TB, s *Store, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		f.charges[0].Hits[0].Key = f.key(i)
		s.Take(t.Context(), f.charges)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// TestBytesPerKey is what the memory of a full store is planned by: under 200 bytes a key, the key and the index included.
func TestBytesPerKey(t *testing.T) {
	const n = 1_000_000
	f := newFiller(limit(t, ratelimit.TokenBucket, 100, time.Hour))
	before := heap()
	s, _ := open(t, Options{MaxKeys: n})
	f.fill(t, s, 0, n)
	after := heap()
	perKey := float64(after-before) / n
	t.Logf("%.1f bytes a key of %d bytes", perKey, len(f.key(0)))
	if perKey >= 200 {
		t.Errorf("%.1f bytes a key", perKey)
	}
	if got := s.Stats(); got.Keys != n || got.Evictions != 0 {
		t.Errorf("%+v", got)
	}
	// Nor does it grow when other keys come and the first ones go.
	f.fill(t, s, n, n+n/20)
	if again := float64(heap()-before) / n; again > perKey*1.02 {
		t.Errorf("%.1f bytes a key after keys were evicted", again)
	}
	runtime.KeepAlive(s)
}

// TestAllocations: a call for keys that are there allocates nothing.
func TestAllocations(t *testing.T) {
	s, clock := open(t, Options{})
	run := func(name string, most float64, charges []ratelimit.Charge) {
		t.Helper()
		ctx := t.Context()
		take := func() {
			clock.Advance(time.Millisecond)
			s.Take(ctx, charges)
		}
		for range 3000 { // until a log has the size that it keeps
			take()
		}
		if got := testing.AllocsPerRun(1000, take); got > most {
			t.Errorf("%s: %v allocations a call", name, got)
		}
		for i := range charges {
			if charges[i].Err != nil {
				t.Errorf("%s: %v", name, charges[i].Err)
			}
		}
	}
	var together []ratelimit.Hit
	for _, algorithm := range ratelimit.Algorithms() {
		l := limit(t, algorithm, 1000, time.Second)
		hit := ratelimit.Hit{Key: "existing-" + algorithm.String(), Limit: l, Cost: 1}
		large := hit
		large.Cost = 10_000
		run(algorithm.String(), 0, []ratelimit.Charge{
			{Hits: []ratelimit.Hit{hit}, Results: make([]ratelimit.Result, 1)},
			{Hits: []ratelimit.Hit{large}, Results: make([]ratelimit.Result, 1)},
		})
		together = append(together, hit)
	}
	most := 0.0
	if raceEnabled {
		most = 10
	}
	run("a group", most, []ratelimit.Charge{{Hits: together, Results: make([]ratelimit.Result, len(together))}})
}
