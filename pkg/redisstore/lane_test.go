package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/test/servers"
)

// grounded returns a store on a server that does not exist, whose lane has flights under way that do not land by themselves.
func grounded(t *testing.T) *Store {
	t.Helper()
	s, err := New(Options{Addr: "127.0.0.1:1", Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for range s.flightsAtMost {
		s.lane.flights = append(s.lane.flights, new(flight))
	}
	return s
}

func charges(t *testing.T, n, hits int) []ratelimit.Charge {
	t.Helper()
	l := &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: 1 << 20, Window: time.Hour}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	made := make([]ratelimit.Charge, n)
	for i := range made {
		made[i] = ratelimit.Charge{Hits: make([]ratelimit.Hit, hits), Results: make([]ratelimit.Result, hits)}
		for j := range made[i].Hits {
			made[i].Hits[j] = ratelimit.Hit{Key: "lane:" + strconv.Itoa(j), Limit: l, Cost: 1}
		}
	}
	return made
}

func (l *lane) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hits
}

// await waits until so many hits are in the lane's queue.
func await(t *testing.T, l *lane, hits int) {
	t.Helper()
	servers.Eventually(t, strconv.Itoa(hits)+" hits wait", func() bool { return l.waiting() == hits })
}

// Who leaves before a flight has taken off with him is not sent.
func TestWhoHasLeftIsNotSent(t *testing.T) {
	t.Parallel()
	s := grounded(t)
	for name, c := range map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		want error
	}{
		"canceled": {func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }, context.Canceled},
		"expired": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 20*time.Millisecond)
		}, context.DeadlineExceeded},
	} {
		ctx, cancel := c.ctx()
		made := charges(t, 3, 2)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Take(ctx, made)
		}()
		if name == "canceled" {
			await(t, &s.lane, 6)
			cancel()
		}
		<-done
		cancel()
		for i := range made {
			if err := made[i].Err; !errors.Is(err, ErrUnavailable) || !errors.Is(err, c.want) {
				t.Errorf("%s: charge %d: error %v", name, i, err)
			}
		}
		s.lane.mu.Lock()
		under := s.lane.flights
		s.lane.flights = nil
		if leader := s.lane.appoint(time.Now()); leader != nil {
			t.Errorf("%s: a flight took off", name)
		}
		if s.lane.first != nil || s.lane.last != nil || s.lane.hits != 0 {
			t.Errorf("%s: %d hits are left in the queue", name, s.lane.hits)
		}
		s.lane.flights = under
		s.lane.mu.Unlock()
	}
}

// The queue is bounded; a call that is larger than it may still wait alone.
func TestOverload(t *testing.T) {
	t.Parallel()
	s := grounded(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	const calls = maxWaiting / 1000
	for range calls {
		go func() {
			s.Take(ctx, charges(t, 1000, 1))
			done <- struct{}{}
		}()
	}
	await(t, &s.lane, calls*1000)
	more := charges(t, 1, 1000)
	s.Take(t.Context(), more)
	if err := more[0].Err; !errors.Is(err, ErrUnavailable) || !errors.Is(err, errOverloaded) {
		t.Errorf("error %v, want that it is overloaded", err)
	}
	cancel()
	for range calls {
		<-done
	}
}

// deaf does nothing when an alarm goes off.
type deaf struct{}

func (deaf) Ring() {}

// A flight takes what has waited longest, up to a batch, is led by the one with the most time, and leaves out who has none.
func TestTakeOff(t *testing.T) {
	t.Parallel()
	s := grounded(t)
	l := &s.lane
	now := time.Now()
	l.alarm.By(now.Add(-time.Hour), deaf{}) // set, as far as the lane knows: nobody looks
	enter := func(hits int, deadline time.Time) *call {
		c := s.calls.get(t.Context(), deadline)
		for i, charge := range charges(t, 1, hits) {
			c.add(&charge, i, false)
		}
		c.ready()
		leads, err := l.enter(c, now)
		if leads || err != nil {
			t.Fatalf("leads is %t, error %v", leads, err)
		}
		return c
	}
	first := enter(100, now.Add(time.Second))
	late := enter(100, now.Add(-time.Millisecond))
	longest := enter(100, now.Add(3*time.Second))
	third := enter(56, now.Add(2*time.Second))
	next := enter(1, now.Add(time.Minute))
	l.flights = nil
	leader := l.appoint(now)
	if leader != longest || longest.state != leading {
		t.Fatalf("it is led by the call with the deadline %v", leader.deadline.Sub(now))
	}
	l.board(leader, now)
	if calls := longest.flight.calls; !slices.Equal(calls, []*call{first, longest, third}) || first.state != riding || third.state != riding {
		t.Fatalf("%d calls are on board", len(calls))
	}
	if <-late.wake; late.state != landed || !errors.Is(late.charges[0].err, context.DeadlineExceeded) {
		t.Errorf("who was late is told %v", late.charges[0].err)
	}
	if l.first != next || l.hits != 1 || l.appoint(now) != nil {
		t.Error("the rest does not wait for this flight")
	}
	patient := enter(1, now.Add(time.Hour))
	enter(1, now.Add(time.Hour))
	if leader := l.appoint(now.Add(impatient)); leader != patient {
		t.Fatal("the rest waits for a flight that is late")
	}
	// Who comes later, with more time than the leader has, waits for a flight that has as much.
	patient.deadline = now.Add(time.Minute)
	if l.board(patient, now); len(patient.flight.calls) != 2 || l.hits != 1 {
		t.Errorf("%d calls are on board, %d hits wait", len(patient.flight.calls), l.hits)
	}
}

const impatient = late + time.Nanosecond

// When the store is closed nobody is left waiting, and nothing runs on.
func TestCloseDrains(t *testing.T) {
	server := servers.Redis(t)
	ignore := goleak.IgnoreCurrent()
	s, err := New(Options{Addr: server.Addr(), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	made := charges(t, 1, 1)
	if s.Take(t.Context(), made); made[0].Err != nil {
		t.Fatal(made[0].Err)
	}
	server.Pause()
	errs := make(chan error)
	callers := 0
	servers.Eventually(t, "callers wait", func() bool {
		callers++
		go func() {
			made := charges(t, 1, 1)
			s.Take(t.Context(), made)
			errs <- made[0].Err
		}()
		return s.Stats().Open > 1 && s.lane.waiting() > 0
	})
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range callers {
		if err := <-errs; !errors.Is(err, ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("callers waited for %v after the store was closed", took)
	}
	server.Resume()
	goleak.VerifyNone(t, ignore)
}
