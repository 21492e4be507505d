package lease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/lease"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// delaying is a store whose first answer that brings a lease waits for release.
type delaying struct {
	engine.Store
	once             sync.Once
	decided, release chan struct{}
	panics           bool
}

func (d *delaying) Take(ctx context.Context, charges []ratelimit.Charge) {
	d.Store.Take(ctx, charges)
	for i := range charges {
		if charges[i].Hits[0].Partial {
			d.once.Do(func() {
				d.decided <- struct{}{}
				<-d.release
				if d.panics {
					panic("after it was decided")
				}
			})
		}
	}
}

// Who is denied because a lease of the same process has just taken what was left, waits for it.
func TestDeniedWhileALeaseIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		panics, leaves, allowed bool
	}{
		"it arrives":         {allowed: true},
		"it never does":      {panics: true},
		"the caller leaves":  {leaves: true},
		"both end in a rush": {leaves: true, panics: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := memory(t, time.Now)
				behind := &delaying{Store: all, decided: make(chan struct{}), release: make(chan struct{}), panics: c.panics}
				s := lease.New(behind, lease.Options{})
				s.Listening(true)
				l := limit(t, ratelimit.FixedWindow, 1000, time.Hour, ratelimit.Lease{Max: 50, TTL: time.Second})
				first := make(chan struct{})
				go func() { // makes the counter busy until a lease is under way
					defer close(first)
					defer func() { _ = recover() }()
					for s.Stats().Held == 0 {
						take(t, s, hit("k:3600", l, 1))
					}
				}()
				<-behind.decided
				rest := charge(hit("k:3600", l, 1000))
				rest.Hits[0].Partial = true
				all.Take(t.Context(), []ratelimit.Charge{rest}) // by another replica
				if rest.Results[0].Granted == 0 {
					t.Fatal("nothing was left but the lease")
				}

				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				denied := []ratelimit.Charge{charge(hit("k:3600", l, 1))}
				second := make(chan struct{})
				go func() {
					defer close(second)
					s.Take(ctx, denied)
				}()
				synctest.Wait()
				select {
				case <-second:
					t.Fatalf("it does not wait: %+v", denied[0].Results[0])
				default:
				}
				if c.leaves {
					leave()
					<-second
				}
				close(behind.release)
				<-second
				<-first
				if r := denied[0].Results[0]; denied[0].Err != nil || r.Allowed != c.allowed || (r.Granted == 1) != c.allowed {
					t.Errorf("%+v, %v", r, denied[0].Err)
				}
			})
		})
	}
}

// What is shown as left is never above the limit, also if the store said it before a lease was taken.
func TestRemainingIsWithinTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := memory(t, time.Now)
		behind := &delaying{Store: all, decided: make(chan struct{}), release: make(chan struct{})}
		s := lease.New(behind, lease.Options{})
		s.Listening(true)
		l := limit(t, ratelimit.FixedWindow, 1000, time.Hour, ratelimit.Lease{Max: 50, TTL: time.Second})
		first := make(chan struct{})
		go func() {
			defer close(first)
			for s.Stats().Held == 0 {
				take(t, s, hit("k:3600", l, 1))
			}
		}()
		<-behind.decided
		if err := all.Reset(t.Context(), []string{"k:3600"}); err != nil { // unheard: the store has all again, and this process a lease
			t.Fatal(err)
		}
		close(behind.release)
		<-first
		for range 3 {
			if r := take(t, s, hit("k:3600", l, 0)).Results[0]; r.Remaining > 1000 {
				t.Errorf("a look: %+v", r)
			}
			if r := take(t, s, hit("k:3600", l, 1)).Results[0]; r.Remaining > 1000 {
				t.Errorf("a hit: %+v", r)
			}
		}
	})
}
