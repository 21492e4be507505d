package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/storetest"
)

// A guarded store that works is a store like any other.
func TestStoreContract(t *testing.T) {
	const idPeriod = 5 * time.Minute
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB, now func() time.Time) engine.Store {
			memory := memstore.New(memstore.Options{Now: now, IDPeriod: idPeriod})
			t.Cleanup(memory.Close)
			// FailClosed: a charge that comes too late must not look as if it had been counted.
			return newStore(t, memory, Options{Mode: ratelimit.FailClosed, Timeout: time.Minute})
		},
		IDPeriod: idPeriod,
	})
}

func TestAnswersOfTheStorePass(t *testing.T) {
	f := &faulty{}
	s := newStore(t, f, Options{})
	c := one(t.Context(), t, s)
	if c.Err != nil || c.Degraded != ratelimit.FailureDefault || c.Results[0].Remaining != 7 {
		t.Errorf("got %+v", c)
	}
	if s.Degraded() != 0 {
		t.Errorf("%d charges degraded", s.Degraded())
	}
	s.Take(t.Context(), nil)
	if f.calls.Load() != 1 {
		t.Error("a call without charges reached the store")
	}
}

func TestDeadline(t *testing.T) {
	tests := []struct {
		name    string
		callers time.Duration // 0: no deadline
		want    time.Duration
	}{
		{"the store's", 0, DefaultTimeout},
		{"the caller's, later", time.Second, DefaultTimeout},
		{"the caller's, earlier", 20 * time.Millisecond, 20 * time.Millisecond},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{}
				f.behave(hang)
				s := newStore(t, f, Options{})
				ctx := t.Context()
				if test.callers > 0 {
					limited, cancel := context.WithTimeout(ctx, test.callers)
					defer cancel()
					ctx = limited
				}
				start := time.Now()
				c := one(ctx, t, s)
				if took := time.Since(start); took != test.want {
					t.Errorf("took %v, want %v", took, test.want)
				}
				if c.Err != nil || c.Degraded != ratelimit.FailOpen || !c.Results[0].Allowed {
					t.Errorf("got %+v", c)
				}
			})
		})
	}
}

func TestAnswersByMode(t *testing.T) {
	const (
		open   = ratelimit.FailOpen
		closed = ratelimit.FailClosed
	)
	tests := []struct {
		name            string
		server, charges ratelimit.FailureMode
		cost            int64
		mode            ratelimit.FailureMode
		want            ratelimit.Result
	}{
		{"the default is allow", 0, 0, 1, open, ratelimit.Result{Allowed: true, Granted: 1, Remaining: 99}},
		{"the server's", closed, 0, 1, closed, ratelimit.Result{RetryAfter: time.Second, ResetAfter: time.Second}},
		{"the charge's deny", open, closed, 1, closed, ratelimit.Result{RetryAfter: time.Second, ResetAfter: time.Second}},
		{"the charge's allow", closed, open, 3, open, ratelimit.Result{Allowed: true, Granted: 3, Remaining: 97}},
		{"local without a local store", closed, ratelimit.FailLocal, 1, closed, ratelimit.Result{RetryAfter: time.Second, ResetAfter: time.Second}},
		{"allow a look", open, 0, 0, open, ratelimit.Result{Allowed: true, Remaining: 100}},
		{"allow more than the limit", open, 0, 500, open, ratelimit.Result{Allowed: true, Granted: 500}},
		{"allow giving back", open, 0, -5, open, ratelimit.Result{Allowed: true, Remaining: 100}},
		{"deny a look", closed, 0, 0, closed, ratelimit.Result{RetryAfter: time.Second, ResetAfter: time.Second}},
		{"deny giving back", closed, 0, -5, closed, ratelimit.Result{Allowed: true, ResetAfter: time.Second}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &faulty{}
			f.behave(func(ctx context.Context, charges []ratelimit.Charge) {
				grant(ctx, charges) // half an answer must not shine through
				refuse(ctx, charges)
			})
			s := newStore(t, f, Options{Mode: test.server})
			charges := []ratelimit.Charge{newCharge(newLimit(t, 100), "key:3600", test.cost)}
			charges[0].OnFailure = test.charges
			s.Take(t.Context(), charges)
			if c := charges[0]; c.Err != nil || c.Degraded != test.mode || c.Results[0] != test.want {
				t.Errorf("got %+v", c)
			}
			if s.Degraded() != 1 {
				t.Errorf("%d charges degraded, want 1", s.Degraded())
			}
		})
	}
}

// One node of a cluster is down: its charges are answered by their mode, the others by the store.
func TestOnlyFailedChargesAreAnswered(t *testing.T) {
	f := &faulty{}
	f.behave(func(ctx context.Context, charges []ratelimit.Charge) {
		grant(ctx, charges)
		charges[1].Err = errDown
		charges[2].Err = ratelimit.ErrConflict
	})
	s := newStore(t, f, Options{Mode: ratelimit.FailClosed})
	limit := newLimit(t, 100)
	for range 1000 {
		charges := []ratelimit.Charge{newCharge(limit, "a:3600", 1), newCharge(limit, "b:3600", 1), newCharge(limit, "c:3600", 1)}
		s.Take(t.Context(), charges)
		if c := charges[0]; c.Err != nil || c.Degraded != 0 || c.Results[0].Remaining != 7 {
			t.Fatalf("the first is %+v", c)
		}
		if c := charges[1]; c.Err != nil || c.Degraded != ratelimit.FailClosed || c.Results[0].Allowed {
			t.Fatalf("the second is %+v", c)
		}
		if c := charges[2]; !errors.Is(c.Err, ratelimit.ErrConflict) || c.Degraded != 0 {
			t.Fatalf("the third is %+v", c)
		}
	}
	if s.State() != Closed {
		t.Errorf("the breaker is %v", s.State())
	}
}

func TestErrorsOfTheCallerPass(t *testing.T) {
	for _, cause := range []error{ratelimit.ErrConflict, fmt.Errorf("charge: %w", ratelimit.ErrLimit), ratelimit.ErrCancelled} {
		f := &faulty{}
		f.behave(func(_ context.Context, charges []ratelimit.Charge) { charges[0].Err = cause })
		s := newStore(t, f, Options{})
		for range 100 {
			if c := one(t.Context(), t, s); !errors.Is(c.Err, cause) || c.Degraded != 0 {
				t.Fatalf("got %+v, want error %v", c, cause)
			}
		}
		if s.State() != Closed {
			t.Errorf("%v opened the breaker", cause)
		}
	}
}

// An error that does not blame the store is answered by the mode, but leaves the breaker closed.
func TestBlame(t *testing.T) {
	errCrossSlot := errors.New("hits live in different slots")
	f := &faulty{}
	f.behave(func(_ context.Context, charges []ratelimit.Charge) { charges[0].Err = errCrossSlot })
	s := newStore(t, f, Options{Mode: ratelimit.FailClosed, Blame: func(err error) bool { return errors.Is(err, errDown) }})
	for range 100 {
		if c := one(t.Context(), t, s); c.Err != nil || c.Degraded != ratelimit.FailClosed {
			t.Fatalf("got %+v", c)
		}
	}
	if s.State() != Closed {
		t.Errorf("the breaker is %v", s.State())
	}
	f.behave(refuse)
	for range DefaultFailures {
		one(t.Context(), t, s)
	}
	if s.State() != Open {
		t.Errorf("the breaker is %v after real failures", s.State())
	}
}

func TestCallersWhoLeft(t *testing.T) {
	t.Run("cancelled before", func(t *testing.T) {
		f := &faulty{}
		s := newStore(t, f, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c := one(ctx, t, s); !errors.Is(c.Err, context.Canceled) {
			t.Errorf("got %+v", c)
		}
		if f.calls.Load() != 0 {
			t.Error("the store was called")
		}
	})
	t.Run("too late before", func(t *testing.T) {
		f := &faulty{}
		s := newStore(t, f, Options{Mode: ratelimit.FailClosed})
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		for range 100 {
			if c := one(ctx, t, s); c.Err != nil || c.Degraded != ratelimit.FailClosed {
				t.Errorf("got %+v", c)
			}
		}
		if f.calls.Load() != 0 || s.State() != Closed {
			t.Errorf("%d calls of the store, breaker %v", f.calls.Load(), s.State())
		}
	})
	tests := []struct {
		name   string
		after  time.Duration
		cancel bool
		want   State
	}{
		{"cancelled at once", 2 * time.Millisecond, true, Closed},
		{"a deadline too short for any store", 2 * time.Millisecond, false, Closed},
		// Envoy's timeout is 20 ms: a store that hangs must be noticed behind it.
		{"cancelled after a while", 20 * time.Millisecond, true, Open},
		{"a deadline after a while", 20 * time.Millisecond, false, Open},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{}
				f.behave(hang)
				s := newStore(t, f, Options{ProbeInterval: time.Hour})
				for range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), test.after)
					if test.cancel {
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(test.after, cancel)
					}
					c := one(ctx, t, s)
					cancelled := test.cancel && s.State() == Closed
					if gone := errors.Is(c.Err, context.Canceled); gone != cancelled && s.State() == Closed {
						t.Fatalf("got %+v", c)
					}
					cancel()
				}
				if s.State() != test.want {
					t.Errorf("the breaker is %v, want %v", s.State(), test.want)
				}
			})
		})
	}
}

func TestPanicOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		var panics atomic.Int64
		f := &faulty{}
		f.behave(func(_ context.Context, charges []ratelimit.Charge) {
			charges[0].Results[0].Allowed = true
			panic("index out of range")
		})
		s := newStore(t, f, Options{Mode: ratelimit.FailClosed, Logger: newLogger(&log), OnPanic: func(any) { panics.Add(1) }})
		for range DefaultFailures {
			if c := one(t.Context(), t, s); c.Err != nil || c.Degraded != ratelimit.FailClosed || c.Results[0].Allowed {
				t.Fatalf("got %+v", c)
			}
		}
		if s.State() != Open || panics.Load() != DefaultFailures {
			t.Errorf("the breaker is %v after %d panics", s.State(), panics.Load())
		}
		time.Sleep(5 * time.Second) // probes panic too
		if n := strings.Count(log.String(), "the rate limit store panicked"); n != 1 {
			t.Errorf("%d lines about panics:\n%s", n, log.String())
		}
		f.behave(nil)
		time.Sleep(time.Second)
		if s.State() != Closed {
			t.Errorf("the breaker is %v", s.State())
		}
	})
}

func TestReset(t *testing.T) {
	f, local := &faulty{}, &faulty{}
	s := newStore(t, f, Options{Local: local, ProbeInterval: time.Hour})
	if err := s.Reset(t.Context(), []string{"key:3600"}); err != nil {
		t.Error(err)
	}
	if f.resets.Load() != 1 || local.resets.Load() != 1 {
		t.Errorf("%d resets of the store, %d of the local one", f.resets.Load(), local.resets.Load())
	}
	open(t, f, s)
	if err := s.Reset(t.Context(), []string{"key:3600"}); !errors.Is(err, ErrOpen) {
		t.Errorf("while it is open: %v", err)
	}
	if f.resets.Load() != 1 || local.resets.Load() != 2 {
		t.Errorf("%d resets of the store, %d of the local one", f.resets.Load(), local.resets.Load())
	}
}

func TestOnTake(t *testing.T) {
	type took struct{ failed, charges int }
	var seen []took
	f := &faulty{}
	s := newStore(t, f, Options{OnTake: func(elapsed time.Duration, failed, charges int) {
		if elapsed < 0 {
			t.Errorf("took %v", elapsed)
		}
		seen = append(seen, took{failed, charges})
	}})
	limit := newLimit(t, 1)
	pair := func() []ratelimit.Charge {
		return []ratelimit.Charge{newCharge(limit, "a:3600", 1), newCharge(limit, "b:3600", 1)}
	}
	s.Take(t.Context(), pair())
	f.behave(func(_ context.Context, charges []ratelimit.Charge) { charges[1].Err = errDown })
	s.Take(t.Context(), pair())
	f.behave(refuse)
	s.Take(t.Context(), pair())
	if want := []took{{0, 2}, {1, 2}, {2, 2}}; fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", seen, want)
	}
}

func TestOptions(t *testing.T) {
	tests := []struct {
		name    string
		options Options
		store   engine.Store
		want    string
	}{
		{"no store", Options{}, nil, "no store to guard"},
		{"negative timeout", Options{Timeout: -1}, &faulty{}, "timeout"},
		{"unknown mode", Options{Mode: 9}, &faulty{}, "unknown failure mode 9"},
		{"local without a store", Options{Mode: ratelimit.FailLocal}, &faulty{}, "needs a local store"},
		{"fraction above 1", Options{Fraction: 1.5}, &faulty{}, "fraction 1.5"},
		{"fraction below 0", Options{Fraction: -0.5}, &faulty{}, "fraction -0.5"},
		{"negative failures", Options{Failures: -1}, &faulty{}, "-1 failures"},
		{"probes without pause", Options{ProbeInterval: time.Microsecond}, &faulty{}, "probe interval"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(test.store, test.options)
			if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// Whatever the store does, no charge is left undecided by its fault, and the store's own answers stay as they are.
func TestNoChargeIsLeftUndecided(t *testing.T) {
	memory := memstore.New(memstore.Options{MaxKeys: 1000})
	t.Cleanup(memory.Close)
	rapid.Check(t, func(t *rapid.T) {
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]error{nil, errDown, context.DeadlineExceeded, ratelimit.ErrConflict, ratelimit.ErrLimit}), 1, 8).Draw(t, "outcomes")
		modes := rapid.SliceOfN(rapid.SampledFrom([]ratelimit.FailureMode{0, ratelimit.FailOpen, ratelimit.FailClosed, ratelimit.FailLocal}), 8, 8).Draw(t, "modes")
		server := rapid.SampledFrom([]ratelimit.FailureMode{ratelimit.FailOpen, ratelimit.FailClosed, ratelimit.FailLocal}).Draw(t, "server")
		f := &faulty{}
		f.behave(func(ctx context.Context, charges []ratelimit.Charge) {
			grant(ctx, charges)
			for i := range charges {
				charges[i].Err = outcomes[i]
			}
		})
		s, err := New(f, Options{Mode: server, Local: memory})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		limit := &ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 10, Window: time.Minute}
		if err := limit.Check(); err != nil {
			t.Fatal(err)
		}
		charges := make([]ratelimit.Charge, len(outcomes))
		for i := range charges {
			charges[i] = ratelimit.Charge{
				Hits:      []ratelimit.Hit{{Key: "a:60", Limit: limit, Cost: 1}, {Key: "b:60", Limit: limit, Cost: 2}},
				Results:   make([]ratelimit.Result, 2),
				OnFailure: modes[i],
			}
		}
		s.Take(t.Context(), charges)
		for i, c := range charges {
			if c.Hits[0].Limit != limit || c.Hits[1].Limit != limit {
				t.Fatalf("charge %d: its hits were changed", i)
			}
			switch {
			case outcomes[i] == nil:
				if c.Err != nil || c.Degraded != 0 || c.Results[0].Remaining != 7 {
					t.Fatalf("charge %d was the store's to answer: %+v", i, c)
				}
			case !answerable(outcomes[i]):
				if !errors.Is(c.Err, outcomes[i]) || c.Degraded != 0 {
					t.Fatalf("charge %d was the caller's fault: %+v", i, c)
				}
			default:
				want := modes[i]
				if want == 0 {
					want = server
				}
				if c.Err != nil || c.Degraded != want {
					t.Fatalf("charge %d should be answered by %v: %+v", i, want, c)
				}
			}
		}
	})
}

// With the breaker open nobody waits: a thousand callers are answered in no time at all while a probe hangs.
func TestNobodyWaitsWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{}
		s := newStore(t, f, Options{Mode: ratelimit.FailClosed})
		open(t, f, s)
		f.behave(hang)
		for s.State() != HalfOpen {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		start := time.Now()
		var group sync.WaitGroup
		for range 1000 {
			group.Go(func() {
				if c := one(t.Context(), t, s); c.Err != nil || c.Degraded != ratelimit.FailClosed {
					t.Errorf("got %+v", c)
				}
			})
		}
		group.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// A store that keeps the time by itself gets no deadline, and so costs no timer.
func TestPunctualStoreGetsTheCallersContext(t *testing.T) {
	for _, punctual := range []bool{false, true} {
		f := &faulty{}
		f.behave(func(ctx context.Context, charges []ratelimit.Charge) {
			if _, bounded := ctx.Deadline(); bounded == punctual {
				t.Errorf("punctual %t: the call has a deadline: %t", punctual, bounded)
			}
			grant(ctx, charges)
		})
		s := newStore(t, f, Options{Punctual: punctual})
		charges := []ratelimit.Charge{{Hits: []ratelimit.Hit{{Key: "k:1", Limit: newLimit(t, 1), Cost: 1}}, Results: make([]ratelimit.Result, 1)}}
		s.Take(t.Context(), charges)
		if charges[0].Err != nil {
			t.Error(charges[0].Err)
		}
	}
}
