package lease_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/lease"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/storetest"
)

// ledger knows what was allowed in truth: each hit at the instant at which it was allowed.
type ledger interface {
	// allow counts hits, and reports whether they are too many for every limit that is in use.
	allow(limits []*ratelimit.Limit, now, n int64) (above bool)
	// back takes hits away that were given back.
	back(now, n int64)
	reset()
}

// windows counts by fixed windows.
type windows struct {
	length        int64
	number        int64
	this, last    int64
	weighsTheLast bool
}

func (w *windows) roll(now int64) {
	switch number := now / w.length; number {
	case w.number:
	case w.number + 1:
		w.number, w.last, w.this = number, w.this, 0
	default:
		w.number, w.last, w.this = number, 0, 0
	}
}

func (w *windows) allow(limits []*ratelimit.Limit, now, n int64) bool {
	w.roll(now)
	w.this += n
	most := int64(0)
	for _, l := range limits {
		most = max(most, l.Count)
	}
	sum := w.this
	if w.weighsTheLast {
		left := w.length - now%w.length
		sum += (w.last*left + w.length - 1) / w.length
	}
	return n > 0 && sum > most
}

func (w *windows) back(now, n int64) {
	w.roll(now)
	w.this -= n
	if w.this < 0 {
		w.last, w.this = max(w.last+w.this, 0), 0
	}
}

func (w *windows) reset() { w.this, w.last = 0, 0 }

// bucket fills and drains as the limit says: what is allowed in any stretch of time is what it holds and what flows in.
type bucket struct {
	parts int64
	at    int64
	unit  int64
}

func (b *bucket) drain(l *ratelimit.Limit, now int64) {
	token, perMicro := l.Rate()
	b.parts = max(b.parts-(now-b.at)*perMicro, 0)
	b.at, b.unit = now, token
}

func (b *bucket) allow(limits []*ratelimit.Limit, now, n int64) bool {
	l := limits[0]
	b.drain(l, now)
	b.parts += n * b.unit
	return n > 0 && b.parts > l.Burst*b.unit
}

func (b *bucket) back(_, n int64) { b.parts = max(b.parts-n*b.unit, 0) }

func (b *bucket) reset() { b.parts = 0 }

// replica is a process, with a clock that shows another time than the store's and runs at another speed.
type replica struct {
	*lease.Store
	limit  *ratelimit.Limit
	clock  *storetest.Clock
	offset time.Duration
	speed  int64 // microseconds in 10,000 that it is too slow
}

func (r *replica) now() time.Time {
	now := r.clock.Now().Add(r.offset)
	return now.Add(-time.Duration(now.Sub(start).Microseconds()*r.speed/10_000) * time.Microsecond)
}

// events are what happens to replicas, what should happen most often first.
var events = []string{
	"busy", "time", "greed", "hits", "busy", "time", "greed", "hits", "busy", "time", "busy", "time", "hits", "hits",
	"death", "reset", "rules", "step", "silence",
}

// Many replicas over one store, each with a clock of its own, never allow more than the limit in any window, whatever is asked
// for, whichever of them die with what they hold, and whenever counters are reset, given something back, and rules changed.
func TestNeverAboveTheLimit(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []ratelimit.Algorithm{ratelimit.FixedWindow, ratelimit.SlidingWindow, ratelimit.TokenBucket} {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			handedOut, lost := uint64(0), uint64(0)
			check(t, func(r *rapid.T) {
				clock := storetest.NewClock(start)
				shared := memory(t, clock.Now)
				limits := limitsOf(r, algorithm)
				truth := ledgerOf(limits[0])
				inUse := limits[:1]
				replicas := make([]*replica, rapid.IntRange(1, 4).Draw(r, "replicas"))
				begin := func(i int) {
					// A thousandth is taken off each lease's time for clocks that are slow.
					p := &replica{limit: inUse[len(inUse)-1], clock: clock, speed: rapid.Int64Range(-9, 9).Draw(r, "speed")}
					p.offset = time.Duration(rapid.Int64Range(0, 3_600_000_000).Draw(r, "offset")) * time.Microsecond
					p.Store = lease.New(shared, lease.Options{Now: p.now})
					p.Listening(true)
					replicas[i] = p
				}
				for i := range replicas {
					begin(i)
				}
				drop := func() {
					for _, p := range replicas {
						p.Drop("k:1")
					}
				}
				for range rapid.IntRange(20, 120).Draw(r, "steps") {
					i := rapid.IntRange(0, len(replicas)-1).Draw(r, "replica")
					p := replicas[i]
					switch rapid.SampledFrom(events).Draw(r, "event") {
					case "busy":
						for range 3 {
							charges := make([]ratelimit.Charge, 6)
							for j := range charges {
								charges[j] = charge(hit("k:1", p.limit, 1))
							}
							serve(r, p, truth, inUse, charges)
						}
					case "death": // with what it holds; another one takes its place
						before := p.Stats()
						handedOut, lost = handedOut+before.Spent, lost+before.Lost+uint64(before.Held)
						begin(i)
					case "reset":
						if err := p.Reset(t.Context(), []string{"k:1"}); err != nil {
							r.Fatal(err)
						}
						drop()
						truth.reset()
					case "rules":
						if len(inUse) < len(limits) {
							inUse = limits[:len(inUse)+1]
						}
						p.limit = inUse[len(inUse)-1]
					case "step": // of its clock
						p.offset += time.Duration(rapid.Int64Range(0, 10_000_000).Draw(r, "clock step")) * time.Microsecond
					case "silence": // as after a lost connection
						p.Listening(false)
						p.Listening(true)
					case "time":
						clock.Advance(time.Duration(rapid.OneOf(rapid.Int64Range(1, 3_000), rapid.Just(1_000_000-clock.Now().UnixMicro()%1_000_000),
							rapid.Int64Range(1, 60_000), rapid.Int64Range(1, 1_100_000)).Draw(r, "time")) * time.Microsecond)
					case "greed": // everybody takes all that there is
						for _, p := range replicas {
							serve(r, p, truth, inUse, []ratelimit.Charge{charge(ratelimit.Hit{Key: "k:1", Limit: p.limit, Cost: 2000, Partial: true})})
						}
					case "hits":
						charges := make([]ratelimit.Charge, rapid.IntRange(1, 20).Draw(r, "charges"))
						for j := range charges {
							cost := rapid.SampledFrom([]int64{1, 1, 1, 1, 1, 1, 2, 5, 0}).Draw(r, "cost")
							charges[j] = charge(ratelimit.Hit{Key: "k:1", Limit: p.limit, Cost: cost, Partial: rapid.Bool().Draw(r, "partial")})
						}
						allowed := serve(r, p, truth, inUse, charges)
						if back := min(rapid.Int64Range(-50, 10).Draw(r, "back"), allowed); back > 0 {
							p.Take(t.Context(), []ratelimit.Charge{charge(hit("k:1", p.limit, -back))})
							drop()
							truth.back(clock.Now().UnixMicro(), back)
						}
					}
				}
				for _, p := range replicas {
					stats := p.Stats()
					if stats.Taken < stats.Spent+stats.Lost+uint64(stats.Held) {
						r.Fatalf("more went out of leases than came in: %+v", stats)
					}
					handedOut, lost = handedOut+stats.Spent, lost+stats.Lost
				}
			})
			if handedOut == 0 || lost == 0 {
				t.Errorf("%d hits were handed out of leases and %d lost: the test has not seen enough", handedOut, lost)
			}
		})
	}
}

// check tries more than rapid does by itself, because what must not happen is rare; the race detector has no time for that.
func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, property)
	for range 5 {
		if !raceEnabled {
			rapid.Check(t, property)
		}
	}
}

// serve lets a replica decide charges of one hit, and returns how many hits it allowed.
func serve(t *rapid.T, p *replica, truth ledger, inUse []*ratelimit.Limit, charges []ratelimit.Charge) (allowed int64) {
	p.Take(context.Background(), charges)
	for j := range charges {
		c := &charges[j]
		granted, cost := c.Results[0].Granted, c.Hits[0].Cost
		if c.Err != nil || granted < 0 || granted > cost || c.Results[0].Allowed != (granted == cost) && cost > 0 || c.Results[0].Remaining < 0 {
			t.Fatalf("%+v: %+v, error %v", c.Hits[0], c.Results[0], c.Err)
		}
		allowed += granted
	}
	if truth.allow(inUse, p.clock.Now().UnixMicro(), allowed) {
		t.Fatalf("%d more were allowed, above %v: %+v", allowed, p.limit, truth)
	}
	return allowed
}

// limitsOf draws limits of which each one takes the place of the one before.
func limitsOf(r *rapid.T, algorithm ratelimit.Algorithm) []*ratelimit.Limit {
	lease := func() ratelimit.Lease {
		return ratelimit.Lease{
			Max: 12 - rapid.Int64Range(0, 10).Draw(r, "max"),
			TTL: rapid.SampledFrom([]time.Duration{time.Second, 200 * time.Millisecond, 10 * time.Millisecond}).Draw(r, "ttl"),
		}
	}
	if algorithm == ratelimit.TokenBucket {
		// One rate and burst: what a bucket may allow while they change is no number.
		rate := rapid.Int64Range(1, 300).Draw(r, "rate")
		burst := rate + rapid.Int64Range(40, 600).Draw(r, "burst")
		limits := make([]*ratelimit.Limit, 3)
		ttl := lease()
		for i := range limits {
			limits[i] = &ratelimit.Limit{Algorithm: algorithm, Count: rate, Burst: burst, Window: time.Second, Lease: ttl}
			if err := limits[i].Check(); err != nil {
				r.Fatal(err)
			}
		}
		return limits
	}
	limits := make([]*ratelimit.Limit, rapid.IntRange(1, 3).Draw(r, "limits"))
	for i := range limits {
		limits[i] = limit(r, algorithm, rapid.Int64Range(40, 600).Draw(r, "count"), time.Second, lease())
	}
	return limits
}

func ledgerOf(l *ratelimit.Limit) ledger {
	if l.Algorithm == ratelimit.TokenBucket {
		return &bucket{at: start.UnixMicro()}
	}
	return &windows{length: l.Window.Microseconds(), weighsTheLast: l.Algorithm == ratelimit.SlidingWindow}
}

var _ engine.Store = (*replica)(nil)
