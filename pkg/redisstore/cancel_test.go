package redisstore

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/test/servers"
)

// cancellable returns charges of one hit, each of a counter of its own, that may be cancelled.
func cancellable(t *testing.T, prefix string, n int) []ratelimit.Charge {
	t.Helper()
	made := charges(t, n, 1)
	for i := range made {
		made[i].Hits[0].Key = prefix + ":" + strconv.Itoa(i) + ":3600"
		made[i].Cancelled = new(atomic.Bool)
	}
	return made
}

// used returns how many hits of a charge's counter are used.
func used(t *testing.T, s *Store, c *ratelimit.Charge) int64 {
	t.Helper()
	look := []ratelimit.Charge{{Hits: []ratelimit.Hit{c.Hits[0]}, Results: make([]ratelimit.Result, 1)}}
	look[0].Hits[0].Cost = 0
	if s.Take(t.Context(), look); look[0].Err != nil {
		t.Fatal(look[0].Err)
	}
	return c.Hits[0].Limit.Count - look[0].Results[0].Remaining
}

// What is cancelled while it waits for its turn is not sent, also if it has an ID; the rest of its call is.
func TestCancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	var trips atomic.Int64
	s, err := New(Options{Addr: server.Addr(), Timeout: 20 * time.Second, PoolSize: 1, Observe: func(time.Duration, error) { trips.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	first := charges(t, 1, 1)
	if s.Take(t.Context(), first); first[0].Err != nil {
		t.Fatal(first[0].Err)
	}
	landed := make(chan struct{})
	start := func(made []ratelimit.Charge) {
		go func() {
			s.Take(t.Context(), made)
			landed <- struct{}{}
		}()
	}
	// occupied has the only flight wait for the server while f runs, and returns when all n calls have landed.
	occupied := func(n int, f func()) {
		t.Helper()
		server.Pause()
		start(charges(t, 1, 1))
		servers.Eventually(t, "the flight has taken off", func() bool { return s.Stats().Idle == 0 && s.lane.waiting() == 0 && !s.lane.idle() })
		f()
		server.Resume()
		for range n + 1 {
			<-landed
		}
	}

	some, all := cancellable(t, "some", 10), cancellable(t, "all", 3)
	some[2].ID, some[3].ID = "id-2", "id-3"
	occupied(2, func() {
		start(some)
		start(all)
		await(t, &s.lane, 13)
		for i := range some {
			some[i].Cancelled.Store(i%3 == 0)
		}
		for i := range all {
			all[i].Cancelled.Store(true)
		}
	})
	for i := range some {
		err, want := some[i].Err, int64(1)
		if i%3 == 0 {
			want = 0
			if !errors.Is(err, ratelimit.ErrCancelled) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
				t.Errorf("charge %d is cancelled and ended with %v", i, err)
			}
		} else if err != nil || some[i].Results[0].Granted != 1 {
			t.Errorf("charge %d: %+v, %v", i, some[i].Results[0], err)
		}
		if got := used(t, s, &some[i]); got != want {
			t.Errorf("charge %d: %d hits were charged, want %d", i, got, want)
		}
	}
	for i := range all {
		if err := all[i].Err; !errors.Is(err, ratelimit.ErrCancelled) || used(t, s, &all[i]) != 0 {
			t.Errorf("charge %d is cancelled and ended with %v", i, err)
		}
	}
	// An ID that was cancelled is not remembered.
	again := cancellable(t, "some", 4)
	again[2].ID, again[3].ID = "id-2", "id-3"
	if s.Take(t.Context(), again); again[2].At != some[2].At || again[3].At == 0 || used(t, s, &again[2]) != 1 || used(t, s, &again[3]) != 1 {
		t.Errorf("the same IDs again: %+v", again[2:])
	}

	// A flight of which nothing is left is none.
	before := trips.Load()
	occupied(1, func() {
		start(all)
		await(t, &s.lane, 3)
	})
	if n := trips.Load() - before; n != 1 {
		t.Errorf("%d round trips, want one", n)
	}
}

// A caller that leaves a flight is told which of its charges were not on it. One that has left before is not on board, so it is
// not asked what is cancelled.
func TestCancelledCallersThatLeave(t *testing.T) {
	t.Parallel()
	s := grounded(t)
	l := &s.lane
	enter := func(ctx context.Context, made []ratelimit.Charge) <-chan struct{} {
		waiting, done := l.waiting(), make(chan struct{})
		go func() {
			defer close(done)
			s.Take(ctx, made)
		}()
		await(t, l, waiting+len(made))
		return done
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone, riding := enter(ctx, cancellable(t, "gone", 2)), cancellable(t, "riding", 2)
	leave()
	<-gone
	ctx, leave = context.WithCancel(t.Context())
	defer leave()
	rode := enter(ctx, riding)
	leads := enter(t.Context(), cancellable(t, "leads", 1))
	riding[1].Cancelled.Store(true)

	l.mu.Lock()
	l.flights = nil
	leader := l.appoint(time.Now())
	l.board(leader, time.Now())
	flight := leader.flight
	leader.flight = nil // it is this test that leads
	l.mu.Unlock()
	if len(flight.calls) != 2 {
		t.Fatalf("%d calls are on board", len(flight.calls))
	}
	flight.load(l, nil)
	if n := flight.requests[0].hits; n != 2 {
		t.Errorf("%d hits are sent, want 2", n)
	}
	leave()
	<-rode
	if err := riding[0].Err; !errors.Is(err, ErrUnavailable) || errors.Is(err, ratelimit.ErrCancelled) {
		t.Errorf("what was sent ended with %v", err)
	}
	if err := riding[1].Err; !errors.Is(err, ratelimit.ErrCancelled) {
		t.Errorf("what was left out ended with %v", err)
	}
	l.land(flight, nil)
	<-leads
}
