package rulestore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// follow runs a follower in a bubble of fake time until the test ends.
func follow(t *testing.T, f *follower) {
	t.Helper()
	var done sync.WaitGroup
	done.Go(func() { f.run(t.Context()) })
	t.Cleanup(done.Wait)
}

func TestFollowerPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revision, looks, calls atomic.Int64
		follow(t, &follower{
			interval: time.Second,
			revision: func(context.Context) (int64, error) { looks.Add(1); return revision.Load(), nil },
			changed:  func(context.Context) error { calls.Add(1); return nil },
		})
		synctest.Wait()
		if n := calls.Load(); n != 1 {
			t.Fatalf("%d calls at the start, want 1: the revision is not known", n)
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if n := looks.Load(); n < 80 || n > 125 || calls.Load() != 1 {
			t.Errorf("%d looks and %d calls in 100 s without a change", n, calls.Load())
		}
		revision.Store(5)
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls 1.2 s after a change, want 2", n)
		}
		revision.Store(3) // the database has been set back
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if n := calls.Load(); n != 3 {
			t.Errorf("%d calls after the revision has fallen, want 3", n)
		}
	})
}

func TestFollowerGathersWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const work = 100 * time.Millisecond
		var revision, calls atomic.Int64
		wake := make(chan struct{}, 1)
		follow(t, &follower{
			interval: time.Hour,
			wake:     wake,
			revision: func(context.Context) (int64, error) { return revision.Load(), nil },
			changed:  func(context.Context) error { time.Sleep(work); calls.Add(1); return nil },
		})
		for range 1000 { // a change each millisecond
			revision.Add(1)
			signal(wake)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before := calls.Load()
		if before < 3 || before > 7 { // at most half of the time is spent on it
			t.Errorf("%d calls for a second of changes", before)
		}
		revision.Add(1)
		signal(wake)
		time.Sleep(maxGather + work)
		synctest.Wait()
		if n := calls.Load(); n != before+1 {
			t.Errorf("%d calls after one more change, want %d", n, before+1)
		}
	})
}

func TestFollowerPausesLongerAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("down")
		looks := make(chan time.Time, 1000)
		var calls atomic.Int64
		var failing atomic.Bool
		failing.Store(true)
		follow(t, &follower{
			interval: 100 * time.Millisecond,
			revision: func(context.Context) (int64, error) {
				looks <- time.Now()
				if failing.Load() {
					return 0, broken
				}
				return 1, nil
			},
			changed: func(context.Context) error { calls.Add(1); return nil },
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(looks) < 25 || len(looks) > 60 {
			t.Errorf("%d looks in a minute of failures", len(looks))
		}
		for last := <-looks; len(looks) > 0; {
			look := <-looks
			if pause := look.Sub(last); pause > maxRetry*6/5 {
				t.Errorf("a pause of %v", pause)
			}
			last = look
		}
		failing.Store(false)
		time.Sleep(maxRetry * 6 / 5)
		synctest.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls once the database is back, want 1", n)
		}
		before := len(looks)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(looks) - before; n < 80 {
			t.Errorf("%d looks in 10 s after recovery: the pause has stayed long", n)
		}
	})
}
