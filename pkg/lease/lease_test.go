package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/lease"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/storetest"
	"github.com/weirhq/weir/test/servers"
)

var usual = ratelimit.Lease{Max: 50, TTL: 200 * time.Millisecond}

// warm makes a counter busy until its lease holds hits.
func warm(t testing.TB, s *lease.Store, key string, l *ratelimit.Limit) {
	t.Helper()
	for range 100 {
		if s.Stats().Held > 0 {
			return
		}
		take(t, s, hit(key, l, 1))
	}
	t.Fatalf("no lease was taken for a counter that is asked for again and again: %+v", s.Stats())
}

// Most hits of a busy counter cost the store nothing, and no more are taken ahead than the rule allows.
func TestBusyCountersAreSpared(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s, behind := leased(t, clock.Now)
	l := limit(t, ratelimit.FixedWindow, 1_000_000, time.Hour, usual)
	for range 10_000 {
		if r := take(t, s, hit("k:3600", l, 1)).Results[0]; !r.Allowed {
			t.Fatalf("denied: %+v", r)
		}
		if held := s.Stats().Held; held > usual.Max {
			t.Fatalf("%d are held", held)
		}
		clock.Advance(100 * time.Microsecond)
	}
	stats := s.Stats()
	if calls := behind.calls.Load(); calls > 300 || stats.Spent < 9_700 || stats.Counters != 1 {
		t.Errorf("%d calls of the store, %+v", calls, stats)
	}
	if stats.Taken != stats.Spent+stats.Lost+uint64(stats.Held) {
		t.Errorf("hits are missing or were invented: %+v", stats)
	}
}

// Counters that are not busy have no lease, and nothing is remembered of them, however many there are.
func TestOthersAreNot(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s, behind := leased(t, clock.Now)
	l := limit(t, ratelimit.TokenBucket, 1000, time.Second, usual)
	for i := range 50_000 {
		take(t, s, hit(fmt.Sprintf("k%d:1", i%10_000), l, 1))
		clock.Advance(10 * time.Microsecond)
	}
	if stats := s.Stats(); behind.hits.Load() != 50_000 || stats.Counters > 50 || stats.Taken > 0 {
		t.Errorf("%d hits reached the store, %+v", behind.hits.Load(), stats)
	}
}

// A lease is smaller the less the store has left, and what is denied anyway has none.
func TestCloseToTheLimit(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s, behind := leased(t, clock.Now)
	l := limit(t, ratelimit.FixedWindow, 1000, time.Hour, ratelimit.Lease{Max: 500, TTL: time.Second})
	for i := range int64(1000) {
		if r := take(t, s, hit("k:3600", l, 1)).Results[0]; !r.Allowed || r.Remaining != 999-i {
			t.Fatalf("hit %d: %+v", i, r)
		}
		if held := s.Stats().Held; held > (1000-i)/16+1 {
			t.Fatalf("%d are held while %d are left", held, 1000-i)
		}
	}
	before := behind.hits.Load()
	for range 100 {
		if r := take(t, s, hit("k:3600", l, 1)).Results[0]; r.Allowed || r.RetryAfter <= 0 {
			t.Fatalf("%+v", r)
		}
	}
	if asked := behind.hits.Load() - before; asked != 100 || s.Stats().Held != 0 {
		t.Errorf("%d were asked for by 100 hits, %+v", asked, s.Stats())
	}
}

// A lease ends with its time, with its window, on a reset or a refund, with the rule, and whenever the store or announcements
// may be missed. What is held then is lost, never spent.
func TestEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s *lease.Store, clock *storetest.Clock, behind *counting, l *ratelimit.Limit) *ratelimit.Limit{
		"time": func(_ *testing.T, _ *lease.Store, clock *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			clock.Advance(usual.TTL)
			return l
		},
		"clock steps back": func(_ *testing.T, _ *lease.Store, clock *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			clock.Advance(-time.Microsecond)
			return l
		},
		"window": func(_ *testing.T, _ *lease.Store, clock *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			clock.Advance(100 * time.Millisecond)
			return l
		},
		"reset": func(t *testing.T, s *lease.Store, _ *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			t.Helper()
			if err := s.Reset(t.Context(), []string{"k:1", "unknown"}); err != nil {
				t.Fatal(err)
			}
			return l
		},
		"reset elsewhere": func(_ *testing.T, s *lease.Store, _ *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			s.Drop("k:1")
			return l
		},
		"refund": func(t *testing.T, s *lease.Store, _ *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			t.Helper()
			take(t, s, hit("k:1", l, -1))
			return l
		},
		"refund among others": func(t *testing.T, s *lease.Store, _ *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			t.Helper()
			other := limit(t, ratelimit.FixedWindow, 10, time.Second, usual0)
			s.Take(t.Context(), []ratelimit.Charge{charge(hit("other:1", other, 1)), charge(hit("k:1", l, -1)), charge(hit("cold:1", l, 1))})
			return l
		},
		"another limit": func(t *testing.T, _ *lease.Store, _ *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			t.Helper()
			return limit(t, l.Algorithm, l.Count, l.Window, l.Lease)
		},
		"silence": func(_ *testing.T, s *lease.Store, _ *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			s.Listening(false)
			s.Listening(true)
			return l
		},
		"nothing is heard": func(_ *testing.T, s *lease.Store, _ *storetest.Clock, _ *counting, l *ratelimit.Limit) *ratelimit.Limit {
			s.Listening(false)
			return l
		},
		"the store is away": func(t *testing.T, s *lease.Store, _ *storetest.Clock, behind *counting, l *ratelimit.Limit) *ratelimit.Limit {
			t.Helper()
			store := behind.Store
			behind.Store = degrading{}
			if c := take(t, s, hit("another:1", l, 1)); c.Degraded != ratelimit.FailOpen {
				t.Errorf("%+v", c)
			}
			behind.Store = store
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock(start.Add(900 * time.Millisecond))
			s, behind := leased(t, clock.Now)
			l := limit(t, ratelimit.FixedWindow, 1000, time.Second, usual)
			warm(t, s, "k:1", l)
			before := behind.hits.Load()
			take(t, s, hit("k:1", l, 1))
			if behind.hits.Load() != before {
				t.Fatal("the lease is not used")
			}
			warm(t, s, "k:1", l)
			held, lost := uint64(s.Stats().Held), s.Stats().Lost
			l = end(t, s, clock, behind, l)
			before = behind.hits.Load()
			if r := take(t, s, hit("k:1", l, 1)).Results[0]; !r.Allowed || behind.hits.Load() == before {
				t.Errorf("the lease was used after its end: %+v", r)
			}
			if stats := s.Stats(); stats.Lost-lost != held || stats.Taken != stats.Spent+stats.Lost+uint64(stats.Held) {
				t.Errorf("%d were held, %+v", held, stats)
			}
		})
	}
}

var usual0 ratelimit.Lease // none

// degrading is a store that is away, behind a guard.
type degrading struct{ engine.Store }

func (degrading) Take(_ context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		charges[i].Err, charges[i].Degraded = nil, charges[i].OnFailure
		if charges[i].Degraded == ratelimit.FailureDefault {
			charges[i].Degraded = ratelimit.FailOpen
		}
		for j := range charges[i].Results {
			charges[i].Results[j] = ratelimit.Result{Allowed: true, Granted: charges[i].Hits[j].Cost, Remaining: 1000}
		}
	}
}

// What a failure mode has answered is no lease, however much it says was granted.
func TestNothingIsTakenFromAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s := lease.New(degrading{}, lease.Options{Now: clock.Now})
	s.Listening(true)
	l := limit(t, ratelimit.FixedWindow, 1000, time.Second, usual)
	for range 100 {
		take(t, s, hit("k:1", l, 1))
	}
	if stats := s.Stats(); stats.Taken != 0 || stats.Held != 0 {
		t.Errorf("%+v", stats)
	}
}

// A caller that leaves ends nobody else's lease.
func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s, _ := leased(t, clock.Now)
	l := limit(t, ratelimit.FixedWindow, 1000, time.Second, usual)
	warm(t, s, "k:1", l)
	held := s.Stats().Held
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	charges := []ratelimit.Charge{charge(hit("another:1", l, 1))}
	s.Take(gone, charges)
	if !errors.Is(charges[0].Err, context.Canceled) || s.Stats().Held != held {
		t.Errorf("error %v, %+v, want %d held", charges[0].Err, s.Stats(), held)
	}
	// One that would spend some of it and asks for more leaves them where they are.
	charges = []ratelimit.Charge{charge(hit("k:1", l, held+1))}
	s.Take(gone, charges)
	if !errors.Is(charges[0].Err, context.Canceled) || s.Stats().Held != held {
		t.Errorf("error %v, %+v, want %d held", charges[0].Err, s.Stats(), held)
	}
}

// late is a store that takes its time: what may be cancelled is so before it is sent.
type late struct{ engine.Store }

func (l late) Take(ctx context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		if cancelled := charges[i].Cancelled; cancelled != nil && cancelled.Load() {
			charges[i].Err = ratelimit.ErrCancelled
		} else {
			l.Store.Take(ctx, charges[i:i+1])
		}
	}
}

// A charge that is cancelled while the store is asked is no reason to end leases: what it would have spent stays there.
func TestCancelledCharges(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s := lease.New(late{memory(t, clock.Now)}, lease.Options{Now: clock.Now})
	s.Listening(true)
	l := limit(t, ratelimit.FixedWindow, 1000, time.Second, usual)
	warm(t, s, "k:1", l)
	held := s.Stats().Held
	charges := []ratelimit.Charge{charge(hit("k:1", l, held+1)), charge(hit("another:1", l, 1))}
	for i := range charges {
		charges[i].Cancelled = new(atomic.Bool)
		charges[i].Cancelled.Store(true)
	}
	s.Take(t.Context(), charges)
	for i := range charges {
		if !errors.Is(charges[i].Err, ratelimit.ErrCancelled) {
			t.Errorf("charge %d: error %v", i, charges[i].Err)
		}
	}
	if stats := s.Stats(); held == 0 || stats.Held < held {
		t.Errorf("%+v, want at least %d held", stats, held)
	}
}

// Looks see what is held; costs above it take the rest from the store; groups and charges with an ID know nothing of it.
func TestCosts(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s, behind := leased(t, clock.Now)
	l := limit(t, ratelimit.FixedWindow, 400, time.Hour, ratelimit.Lease{Max: 20, TTL: time.Second})
	for s.Stats().Held < 10 {
		take(t, s, hit("k:3600", l, 1))
	}
	stats := s.Stats()
	inStore := 400 - behind.hits.Load()
	left := inStore + stats.Held
	if r := take(t, s, hit("k:3600", l, 0)).Results[0]; !r.Allowed || r.Remaining != left {
		t.Errorf("a look: %+v, want %d remaining", r, left)
	}
	id := charge(hit("k:3600", l, 2))
	id.ID = "id"
	for range 2 {
		charges := []ratelimit.Charge{id}
		s.Take(t.Context(), charges)
		if r := charges[0].Results[0]; charges[0].Err != nil || !r.Allowed || r.Remaining != inStore-2 || charges[0].At == 0 {
			t.Errorf("with an ID: %+v", charges[0])
		}
	}
	group := take(t, s, hit("k:3600", l, 1), hit("b:3600", l, inStore))
	if r := group.Results; !r[0].Allowed || !r[1].Allowed || r[0].Remaining != inStore-3 {
		t.Errorf("a group: %+v", r)
	}
	inStore -= 3
	left = inStore + s.Stats().Held
	// More than there is in all: nothing is charged, and nothing of the lease is gone.
	if r := take(t, s, hit("k:3600", l, left+1)).Results[0]; r.Allowed || r.Granted != 0 || s.Stats().Lost != 0 {
		t.Errorf("too much: %+v, %+v", r, s.Stats())
	}
	if r := take(t, s, hit("k:3600", l, 0)).Results[0]; !r.Allowed || r.Remaining != left {
		t.Errorf("a look after it: %+v, want %d remaining", r, left)
	}
	partial := hit("k:3600", l, left+1)
	partial.Partial = true
	if r := take(t, s, partial).Results[0]; r.Allowed || r.Granted != left || r.Remaining != 0 || s.Stats().Held != 0 {
		t.Errorf("all that is left: %+v, %+v, want %d", r, s.Stats(), left)
	}
	if r := take(t, s, hit("k:3600", l, 0)).Results[0]; r.Allowed {
		t.Errorf("a look at nothing: %+v", r)
	}
}

// The counters that are cared for are bounded, and those that are not busy any more make room.
func TestBounded(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(start)
	s := lease.New(memory(t, clock.Now), lease.Options{Now: clock.Now, Counters: 256})
	s.Listening(true)
	l := limit(t, ratelimit.FixedWindow, 1000, time.Second, usual)
	key := make([]byte, 0, 32)
	round := func(n int) {
		for i := range 2000 {
			key = fmt.Appendf(key[:0], "bounded-%d-%d:1", n, i)
			for range 8 {
				take(t, s, hit(string(key), l, 1))
			}
		}
	}
	round(1)
	first := s.Stats()
	if first.Counters > 256 || first.Counters < 128 || first.Leases == 0 {
		t.Errorf("%+v", first)
	}
	clock.Advance(time.Minute)
	round(2)
	if second := s.Stats(); second.Counters > 256 || second.Taken <= first.Taken || second.Taken != second.Spent+second.Lost+uint64(second.Held) {
		t.Errorf("%+v, before %+v", second, first)
	}
}

// Three replicas with a real Redis and real clocks, three hundred callers who do not stop: never more than the limit, and in the
// end all of it but for what lay in leases.
func TestReplicasOnRedis(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	for _, algorithm := range []ratelimit.Algorithm{ratelimit.FixedWindow, ratelimit.SlidingWindow, ratelimit.TokenBucket} {
		var replicas [3]*lease.Store
		for i := range replicas {
			replicas[i] = onRedis(t, server, nil)
		}
		const count, callers = 20_000, 300
		l := limit(t, algorithm, count, 24*time.Hour, ratelimit.Lease{Max: 500, TTL: 200 * time.Millisecond})
		key := algorithm.String() + ":86400"
		var allowed atomic.Int64
		var group sync.WaitGroup
		for caller := range callers {
			group.Go(func() {
				charges := []ratelimit.Charge{charge(hit(key, l, 1)), charge(hit(key, l, 1+int64(caller%2)))}
				for denied := 0; denied < 3; {
					replicas[caller%len(replicas)].Take(t.Context(), charges)
					for i := range charges {
						if charges[i].Err != nil {
							t.Error(charges[i].Err)
							return
						}
						allowed.Add(charges[i].Results[0].Granted)
					}
					if !charges[0].Results[0].Allowed {
						denied++
					}
				}
			})
		}
		group.Wait()
		var spent, lost, taken uint64
		var held int64
		for _, s := range replicas {
			stats := s.Stats()
			spent, lost, taken, held = spent+stats.Spent, lost+stats.Lost, taken+stats.Taken, held+stats.Held
		}
		left := take(t, onRedis(t, server, nil), hit(key, l, 0)).Results[0].Remaining
		unspent := int64(taken - spent)
		if got := allowed.Load(); got > count || got+unspent+left < l.Capacity()-1 || got+unspent+left > count+1 {
			t.Errorf("%v: %d allowed, %d taken ahead and not spent (%d held, %d lost), %d left of %d", algorithm, got, unspent, held, lost, left, count)
		}
		if spent < count/10 || unspent > count/10 {
			t.Errorf("%v: %d of %d were handed out of leases, %d not spent", algorithm, spent, count, unspent)
		}
		t.Logf("%v: %d allowed, %d of them out of leases, %d not spent, %d left", algorithm, allowed.Load(), spent, unspent, left)
	}
}

// Reset on one replica ends the leases of the others.
func TestResetIsHeard(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	a, b := onRedis(t, server, nil), onRedis(t, server, nil)
	l := limit(t, ratelimit.FixedWindow, 100_000, 24*time.Hour, ratelimit.Lease{Max: 100, TTL: 5 * time.Second})
	warm(t, a, "k:86400", l)
	if err := b.Reset(t.Context(), []string{"k:86400"}); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the other replica has heard", func() bool { return a.Stats().Held == 0 })
	server.Pause()
	servers.Eventually(t, "nothing is heard", func() bool { return !a.Stats().Listening })
	server.Resume()
	servers.Eventually(t, "announcements are heard again", func() bool { return a.Stats().Listening })
	warm(t, a, "k:86400", l)
}

var _ redisstore.Listener = (*lease.Store)(nil)

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates: nothing to measure")
		return
	}
	s, _ := leased(t, time.Now)
	l := limit(t, ratelimit.TokenBucket, 1<<30, time.Second, ratelimit.Lease{Max: 100_000, TTL: 200 * time.Millisecond})
	charges := []ratelimit.Charge{charge(hit("k:1", l, 1)), charge(hit("k:1", l, 2))}
	for range 10_000 {
		s.Take(t.Context(), charges)
	}
	if n := testing.AllocsPerRun(1000, func() { s.Take(t.Context(), charges) }); n > 0 {
		t.Errorf("%v allocations for two hits", n)
	}
}

func BenchmarkTake(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("busy, %d at once", n), func(b *testing.B) {
			s, _ := leased(b, time.Now)
			l := limit(b, ratelimit.TokenBucket, 1<<30, time.Second, ratelimit.Lease{Max: 100_000, TTL: 200 * time.Millisecond})
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				charges := make([]ratelimit.Charge, n)
				for i := range charges {
					charges[i] = charge(hit("k:1", l, 1))
				}
				for i := 0; p.Next(); i++ {
					if i%n == 0 {
						s.Take(b.Context(), charges)
					}
				}
			})
		})
	}
}
