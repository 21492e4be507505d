package failover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestOpensAfterFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{}
		s := newStore(t, f, Options{Failures: 3})
		one(t.Context(), t, s)
		time.Sleep(time.Second) // long after a success
		f.behave(refuse)
		for i := range 3 {
			if s.State() != Closed {
				t.Fatalf("it is %v after %d failures", s.State(), i)
			}
			one(t.Context(), t, s)
		}
		if s.State() != Open {
			t.Fatalf("it is %v after 3 failures", s.State())
		}
		before := f.calls.Load()
		for range 100 {
			one(t.Context(), t, s)
		}
		if got := f.calls.Load(); got != before {
			t.Errorf("%d calls reached the store while it was open", got-before)
		}
	})
}

func TestSuccessForgivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{}
		s := newStore(t, f, Options{Failures: 3})
		for range 100 {
			f.behave(refuse)
			one(t.Context(), t, s)
			one(t.Context(), t, s)
			f.behave(nil)
			one(t.Context(), t, s)
			time.Sleep(time.Second)
		}
		if s.State() != Closed {
			t.Errorf("it is %v", s.State())
		}
	})
}

// A cluster with a third of its slots away fails calls in a row by chance, at any rate that such a cluster is needed for.
// The breaker must stay closed: two thirds of the callers get the store's answer.
func TestOneNodeDownKeepsItClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		f := &faulty{}
		f.behave(func(ctx context.Context, charges []ratelimit.Charge) {
			if random.IntN(3) == 0 {
				refuse(ctx, charges)
				return
			}
			grant(ctx, charges)
		})
		s := newStore(t, f, Options{})
		inARow, most := 0, 0
		for range 100_000 {
			inARow++
			if c := one(t.Context(), t, s); c.Degraded == 0 {
				inARow = 0
			}
			most = max(most, inARow)
			if s.State() != Closed {
				t.Fatalf("it is %v after %d failures in a row", s.State(), inARow)
			}
			time.Sleep(time.Millisecond)
		}
		if most <= DefaultFailures {
			t.Errorf("only %d failures in a row: the test shows nothing", most)
		}
	})
}

func TestReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{}
		var changes []string
		s := newStore(t, f, Options{OnStateChange: func(from, to State) { changes = append(changes, from.String()+">"+to.String()) }})
		open(t, f, s)
		time.Sleep(10 * time.Second)
		f.behave(nil)
		start := time.Now()
		for one(t.Context(), t, s).Degraded != 0 {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(start); took > DefaultProbeInterval*3/2+DefaultTimeout {
			t.Errorf("back after %v", took)
		}
		if s.State() != Closed {
			t.Errorf("it is %v", s.State())
		}
		synctest.Wait()
		if changes[0] != "closed>open" || changes[len(changes)-1] != "half_open>closed" {
			t.Errorf("changes: %v", changes)
		}
		for i, change := range changes[1 : len(changes)-1] {
			if want := []string{"open>half_open", "half_open>open"}[i%2]; change != want {
				t.Errorf("change %d is %s, want %s", i+1, change, want)
			}
		}
		if n := len(changes) / 2; n < 20 || n > 42 {
			t.Errorf("%d probes in 10 s", n)
		}
	})
}

// Whatever a thousand callers do, the store sees one probe at a time.
func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{}
		s := newStore(t, f, Options{})
		open(t, f, s)
		f.most.Store(0)
		f.behave(hang)
		stop := make(chan struct{})
		var group sync.WaitGroup
		for range 1000 {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						one(t.Context(), t, s)
					}
				}
			})
		}
		time.Sleep(5 * time.Second)
		close(stop)
		group.Wait()
		if got := f.most.Load(); got != 1 {
			t.Errorf("%d calls at once reached the store", got)
		}
	})
}

func TestProbationAfterReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		probe := func(context.Context) error {
			if fail.Load() {
				return errDown
			}
			return nil
		}
		f := &faulty{}
		s := newStore(t, f, Options{Probe: probe})
		open(t, f, s)
		time.Sleep(time.Second) // the probe says that the store is back, but it is not
		if s.State() != Closed {
			t.Fatalf("it is %v", s.State())
		}
		fail.Store(true)
		one(t.Context(), t, s)
		if s.State() != Open {
			t.Errorf("it is %v after the first failure on probation", s.State())
		}
		fail.Store(false)
		time.Sleep(time.Second)
		f.behave(nil)
		one(t.Context(), t, s)
		f.behave(refuse)
		time.Sleep(time.Second)
		one(t.Context(), t, s)
		if s.State() != Closed {
			t.Errorf("it is %v after one failure, though a call had succeeded", s.State())
		}
	})
}

// Calls that began before the breaker opened end when it is closed again: what they say is old.
func TestOldResultsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{}
		f.behave(hang)
		s := newStore(t, f, Options{Timeout: 10 * time.Second, ProbeInterval: 100 * time.Millisecond, Failures: 2})
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() { one(t.Context(), t, s) })
		}
		time.Sleep(5 * time.Second)
		f.behave(refuse)
		one(t.Context(), t, s)
		one(t.Context(), t, s)
		if s.State() != Open {
			t.Fatalf("it is %v", s.State())
		}
		f.behave(nil)
		time.Sleep(time.Second)
		one(t.Context(), t, s) // probation is over
		group.Wait()           // ten failures
		if s.State() != Closed {
			t.Errorf("it is %v", s.State())
		}
	})
}

func TestBuiltInProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		f := &faulty{}
		s := newStore(t, f, Options{ProbePrefix: "edge:"})
		open(t, f, s)
		var mu sync.Mutex
		f.behave(func(ctx context.Context, charges []ratelimit.Charge) {
			mu.Lock()
			defer mu.Unlock()
			keys = keys[:0]
			grant(ctx, charges)
			for i := range charges {
				keys = append(keys, charges[i].Hits[0].Key)
				if i > 0 {
					charges[i].Err = errDown // all nodes but one are still away
				}
			}
		})
		time.Sleep(time.Second)
		if s.State() != Closed {
			t.Errorf("it is %v although one node is back", s.State())
		}
		mu.Lock()
		defer mu.Unlock()
		if len(keys) != ProbeKeys || len(slices.Compact(slices.Sorted(slices.Values(keys)))) != ProbeKeys {
			t.Errorf("the probe's keys are %v", keys)
		}
		for _, key := range keys {
			if !strings.HasPrefix(key, "edge:") {
				t.Errorf("key %q", key)
			}
		}
	})
}

func TestOwnProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answers []func() error
		answers = append(answers,
			func() error { return errDown },
			func() error { panic("in the probe") },
			func() error { return nil })
		f := &faulty{}
		s := newStore(t, f, Options{Probe: func(ctx context.Context) error {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != DefaultTimeout {
				t.Errorf("the probe's deadline is in %v", time.Until(deadline))
			}
			answer := answers[0]
			answers = answers[1:]
			return answer()
		}})
		open(t, f, s)
		before := f.calls.Load()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s.State() != Closed || len(answers) != 0 {
			t.Errorf("it is %v with %d answers left", s.State(), len(answers))
		}
		if f.calls.Load() != before {
			t.Error("the store was called beside the probe")
		}
	})
}

func TestCloseEndsProbing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{}
		s := newStore(t, f, Options{Mode: ratelimit.FailClosed})
		open(t, f, s)
		f.behave(hang)
		for s.State() != HalfOpen {
			time.Sleep(time.Millisecond)
		}
		start := time.Now()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("closing took %v while a probe hung", took)
		}
		before := f.calls.Load()
		time.Sleep(time.Minute)
		if f.calls.Load() != before {
			t.Error("it still probes")
		}
		if c := one(t.Context(), t, s); c.Err != nil || c.Degraded != ratelimit.FailClosed {
			t.Errorf("got %+v", c)
		}
	})
}

func TestCloseWhileClosed(t *testing.T) {
	f := &faulty{}
	s := newStore(t, f, Options{})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	f.behave(refuse)
	for range 100 { // starts no goroutine that nobody would end
		if c := one(t.Context(), t, s); c.Degraded != ratelimit.FailOpen {
			t.Fatalf("got %+v", c)
		}
	}
}

func TestLogsOncePerOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		f := &faulty{}
		s := newStore(t, f, Options{Logger: newLogger(&log)})
		f.behave(hang)
		for range 1000 {
			one(t.Context(), t, s)
			time.Sleep(time.Millisecond)
		}
		f.behave(nil)
		time.Sleep(2 * time.Second)
		for range 10 {
			one(t.Context(), t, s)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		// One of the failures before it opened, one when it did, one when the store was back.
		if len(lines) != 3 {
			t.Fatalf("%d lines:\n%s", len(lines), log.String())
		}
		for i, want := range []string{"level=WARN", "level=ERROR", "level=INFO"} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("line %d is %s", i, lines[i])
			}
		}
		if !strings.Contains(lines[1], "mode=allow") || !strings.Contains(lines[1], "deadline exceeded") {
			t.Errorf("when it opened: %s", lines[1])
		}
		if !strings.Contains(lines[2], "degraded=996") || !strings.Contains(lines[2], "outage=") {
			t.Errorf("when the store was back: %s", lines[2])
		}
	})
}

func TestSingleFailuresAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		f := &faulty{}
		s := newStore(t, f, Options{Logger: newLogger(&log)})
		f.behave(func(_ context.Context, charges []ratelimit.Charge) { charges[0].Err = errDown })
		limit := newLimit(t, 1)
		for range 60_000 {
			s.Take(t.Context(), []ratelimit.Charge{newCharge(limit, "a:3600", 1), newCharge(limit, "b:3600", 1)})
			time.Sleep(time.Millisecond)
		}
		if n := strings.Count(log.String(), "\n"); n != 6 {
			t.Errorf("%d lines in a minute:\n%s", n, log.String())
		}
		if !strings.Contains(log.String(), "unsaid=9999") {
			t.Errorf("it does not say how many are not shown:\n%s", log.String())
		}
	})
}

// A store that comes and goes under a thousand callers: never more than one probe, never a wait beyond the deadline, and
// the store's answers as soon as it is there for good.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{}
		var probes, most atomic.Int64
		s := newStore(t, f, Options{Probe: func(ctx context.Context) error {
			n := probes.Add(1)
			defer probes.Add(-1)
			if n > most.Load() {
				most.Store(n)
			}
			charges := []ratelimit.Charge{newCharge(newLimit(t, 1), "probe:1", 0)}
			f.Take(ctx, charges)
			return charges[0].Err
		}})
		stop := make(chan struct{})
		var group sync.WaitGroup
		for range 1000 {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
					}
					start := time.Now()
					c := one(t.Context(), t, s)
					if took := time.Since(start); took > DefaultTimeout || c.Err != nil {
						t.Errorf("took %v: %v", took, c.Err)
						return
					}
				}
			})
		}
		for i := range 20 {
			f.behave([]func(context.Context, []ratelimit.Charge){hang, nil, refuse, nil}[i%4])
			time.Sleep(300 * time.Millisecond)
		}
		f.behave(nil)
		time.Sleep(time.Second)
		close(stop)
		group.Wait()
		if most.Load() != 1 {
			t.Errorf("%d probes at once", most.Load())
		}
		if c := one(t.Context(), t, s); c.Degraded != 0 || s.State() != Closed {
			t.Errorf("the store is back, but the answer is %+v and the breaker %v", c, s.State())
		}
	})
}

func TestStateNames(t *testing.T) {
	var names []string
	for _, state := range append(States(), 9) {
		names = append(names, state.String())
	}
	if got := fmt.Sprint(names); got != "[closed open half_open state(9)]" {
		t.Error(got)
	}
	if !errors.Is(fmt.Errorf("reset: %w", ErrOpen), ErrOpen) {
		t.Error("ErrOpen cannot be told")
	}
}
