package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// boards has the waiting calls board a flight of which none of them is told, as if it were under way.
func boards(t *testing.T, l *lane, leader *call) *flight {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flights = nil
	if leads := l.appoint(time.Now()); leads != leader {
		t.Fatal("another call leads")
	}
	l.board(leader, time.Now())
	f := leader.flight
	leader.flight = nil
	return f
}

// waits puts a call of one charge into the lane's queue, for a caller that the test plays itself.
func waits(ctx context.Context, t *testing.T, s *Store, patience time.Duration) (*call, []ratelimit.Charge) {
	t.Helper()
	now := time.Now()
	c := s.calls.get(ctx, now.Add(patience))
	made := charges(t, 1, 1)
	c.add(&made[0], 0, false)
	c.ready()
	if leads, err := s.lane.enter(c, now); leads || err != nil {
		t.Fatalf("leads is %t, error %v", leads, err)
	}
	return c, made
}

// Whoever waits is sent away at its deadline, and soon after its context's end, whether it is in the queue or in a flight, and
// nobody else is. The timer is set only while somebody waits.
func TestWatch(t *testing.T) {
	t.Parallel()
	for _, onBoard := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := grounded(t)
			l := &s.lane
			patience := []time.Duration{3 * time.Second, time.Second, 25 * time.Millisecond, 7 * time.Millisecond, time.Second}
			ctx, cancel := context.WithCancel(t.Context())
			calls, made := make([]*call, len(patience)), make([][]ratelimit.Charge, len(patience))
			for i, p := range patience {
				of := t.Context()
				if i == 4 {
					of = ctx
				}
				calls[i], made[i] = waits(of, t, s, p)
			}
			began := time.Now()
			var f *flight
			if onBoard {
				f = boards(t, l, calls[0])
			}
			want := goOn
			if onBoard {
				want = sentAway
			}
			ends := func(i int, after, late time.Duration, why error) {
				t.Helper()
				if got := <-calls[i].wake; got != want {
					t.Errorf("call %d is told %v, want %v", i, got, want)
				}
				if took := time.Since(began); took < after || took > after+late {
					t.Errorf("call %d waited for %v, want %v", i, took, after)
				}
				if onBoard {
					if !l.leave(calls[i], made[i]) {
						t.Errorf("call %d may not leave", i)
					}
				} else {
					calls[i].deliver(made[i])
				}
				if err := made[i][0].Err; !errors.Is(err, ErrUnavailable) || !errors.Is(err, why) {
					t.Errorf("call %d: error %v", i, err)
				}
			}
			ends(3, patience[3], 0, context.DeadlineExceeded)
			ends(2, patience[2], 0, context.DeadlineExceeded)
			time.Sleep(100*time.Millisecond - time.Since(began))
			cancel()
			ends(4, 100*time.Millisecond, lookEvery, context.Canceled)
			ends(1, patience[1], 0, context.DeadlineExceeded)
			if onBoard {
				if len(calls[0].wake) > 0 {
					t.Error("the leader is told to leave")
				}
				l.land(f, calls[0])
			} else {
				ends(0, patience[0], 0, context.DeadlineExceeded)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			under := s.flightsAtMost
			if onBoard {
				under = 0
			}
			if l.mu.Lock(); l.alarm.IsSet() || l.first != nil || len(l.flights) != under {
				t.Errorf("while nobody waits: the alarm is set is %v, %d flights are under way", l.alarm.IsSet(), len(l.flights))
			}
			l.mu.Unlock()
		})
	}
}

// A flight that lands while a caller is on its way out gives it what it has decided, and wakes it only once.
func TestLandsWhileLeaving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := grounded(t)
		leader, _ := waits(t.Context(), t, s, time.Second)
		c, made := waits(t.Context(), t, s, time.Millisecond)
		f := boards(t, &s.lane, leader)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		c.charges[0].err = nil
		c.charges[0].results[0] = ratelimit.Result{Allowed: true, Granted: 1}
		s.lane.land(f, leader)
		if got := <-c.wake; got != sentAway || len(c.wake) > 0 {
			t.Errorf("it is told %v, and %d signals are left", got, len(c.wake))
		}
		if s.lane.leave(c, made) {
			t.Fatal("it leaves although the flight has landed")
		}
		if c.deliver(made); made[0].Err != nil || made[0].Results[0].Granted != 1 {
			t.Errorf("%+v, %v", made[0].Results[0], made[0].Err)
		}
	})
}
