package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/storetest"
)

// faulty is a good store behind something that is wrong.
type faulty struct {
	engine.Store
	take func(store engine.Store, ctx context.Context, charges []ratelimit.Charge)
}

func (f faulty) Take(ctx context.Context, charges []ratelimit.Charge) { f.take(f.Store, ctx, charges) }

// faults are ways in which a store breaks its contract, and the part of the suite that must find each.
var faults = []struct {
	name, found string
	take        func(store engine.Store, ctx context.Context, charges []ratelimit.Charge)
}{
	{"nothing", "", engine.Store.Take},
	{"gives nothing back", "golden", func(store engine.Store, ctx context.Context, charges []ratelimit.Charge) {
		for _, c := range charges {
			for i := range c.Hits {
				c.Hits[i].Cost = max(c.Hits[i].Cost, 0)
			}
		}
		store.Take(ctx, charges)
	}},
	{"rounds durations", "golden", func(store engine.Store, ctx context.Context, charges []ratelimit.Charge) {
		store.Take(ctx, charges)
		for _, c := range charges {
			for i := range c.Results {
				c.Results[i].RetryAfter = c.Results[i].RetryAfter.Truncate(time.Millisecond)
			}
		}
	}},
	{"charges hits of a group one by one", "groups", func(store engine.Store, ctx context.Context, charges []ratelimit.Charge) {
		for i := range charges {
			c := &charges[i]
			for j := range c.Hits {
				one := []ratelimit.Charge{{Hits: c.Hits[j : j+1], Results: c.Results[j : j+1], ID: c.ID}}
				store.Take(ctx, one)
				c.Err = one[0].Err
			}
		}
	}},
	{"knows no ids", "ids", func(store engine.Store, ctx context.Context, charges []ratelimit.Charge) {
		for i := range charges {
			charges[i].ID = ""
		}
		store.Take(ctx, charges)
	}},
	{"takes charges from the end", "charges", func(store engine.Store, ctx context.Context, charges []ratelimit.Charge) {
		slices.Reverse(charges)
		store.Take(ctx, charges)
		slices.Reverse(charges)
	}},
	{"trims keys", "keys", func(store engine.Store, ctx context.Context, charges []ratelimit.Charge) {
		for _, c := range charges {
			for i := range c.Hits {
				c.Hits[i].Key = strings.TrimSpace(c.Hits[i].Key)
			}
		}
		store.Take(ctx, charges)
	}},
	{"allows when its time is over", "context", func(store engine.Store, ctx context.Context, charges []ratelimit.Charge) {
		if ctx.Err() == nil {
			store.Take(ctx, charges)
			return
		}
		for _, c := range charges {
			for i := range c.Results {
				c.Results[i] = ratelimit.Result{Allowed: true, Granted: c.Hits[i].Cost}
			}
		}
	}},
}

// sloppy keeps keys without copying them.
type sloppy struct {
	mu     sync.Mutex
	now    func() time.Time
	states map[string]algo.State
}

func (s *sloppy) Take(_ context.Context, charges []ratelimit.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range charges {
		states := make([]algo.State, len(c.Hits))
		for i, hit := range c.Hits {
			states[i] = s.states[hit.Key]
		}
		algo.Take(c.Hits, states, s.now().UnixMicro(), c.Results)
		for i, hit := range c.Hits {
			s.states[hit.Key] = states[i]
		}
	}
}

func (s *sloppy) Reset(_ context.Context, keys []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.states, key)
	}
	return nil
}

const faultVariable = "STORETEST_FAULT"

// TestFault runs the suite on the store whose fault the environment names, in a process that TestRunFindsFaults started.
func TestFault(t *testing.T) {
	name := os.Getenv(faultVariable)
	good := func(t testing.TB, now func() time.Time) engine.Store {
		store := memstore.New(memstore.Options{Now: now, MaxKeys: 10_000})
		t.Cleanup(store.Close)
		return store
	}
	h := storetest.Harness{New: good, IDPeriod: 5 * time.Minute}
	switch name {
	case "":
		storetest.Golden(t, good, "charges") // so that the package's own run runs something here
		return
	case "is sloppy":
		h.New = func(_ testing.TB, now func() time.Time) engine.Store {
			return &sloppy{now: now, states: make(map[string]algo.State)}
		}
	case "shares nothing":
		h.Replicas = func(t testing.TB, n int, now func() time.Time) []engine.Store {
			stores := make([]engine.Store, n)
			for i := range stores {
				stores[i] = good(t, now)
			}
			return stores
		}
	default:
		for _, fault := range faults {
			if fault.name == name {
				h.New = func(t testing.TB, now func() time.Time) engine.Store { return faulty{good(t, now), fault.take} }
			}
		}
	}
	storetest.Run(t, h)
}

// TestRunFindsFaults: the suite fails on stores that are wrong, each in the part that is about it, and passes without a
// fault.
func TestRunFindsFaults(t *testing.T) {
	type expectation struct{ name, found string }
	expectations := []expectation{{"is sloppy", "keys"}, {"shares nothing", "concurrent"}, {"shares nothing", "groups"}}
	for _, fault := range faults {
		expectations = append(expectations, expectation{fault.name, fault.found})
	}
	for _, e := range expectations {
		t.Run(e.name, func(t *testing.T) {
			part := "^TestFault$"
			if e.found != "" {
				part += "/^" + e.found + "$"
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+part)
			cmd.Env = append(os.Environ(), faultVariable+"="+e.name)
			output, err := cmd.CombinedOutput()
			switch {
			case e.found == "" && err != nil:
				t.Errorf("the suite fails on a good store: %v\n%s", err, output)
			case e.found != "" && (err == nil || !strings.Contains(string(output), "--- FAIL: TestFault/"+e.found)):
				t.Errorf("%s does not find it: %v\n%.2000s", e.found, err, output)
			}
		})
	}
}
