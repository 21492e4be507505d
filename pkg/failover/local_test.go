package failover

import (
	"context"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
)

func newMemory(t testing.TB) *memstore.Store {
	t.Helper()
	memory := memstore.New(memstore.Options{MaxKeys: 10_000})
	t.Cleanup(memory.Close)
	return memory
}

func TestLocalAllowsAFraction(t *testing.T) {
	f := &faulty{}
	s := newStore(t, f, Options{Mode: ratelimit.FailLocal, Local: newMemory(t), Fraction: 0.25, ProbeInterval: time.Hour})
	open(t, f, s)
	limit := newLimit(t, 1000)
	var allowed int64
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			for range 100 {
				charges := []ratelimit.Charge{newCharge(limit, "shared:3600", 1)}
				s.Take(t.Context(), charges)
				if c := charges[0]; c.Err != nil || c.Degraded != ratelimit.FailLocal {
					t.Errorf("got %+v", c)
				}
				mu.Lock()
				allowed += charges[0].Results[0].Granted
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if allowed != 250 {
		t.Errorf("%d allowed of a limit of 1000 at a quarter", allowed)
	}
	if limit.Count != 1000 {
		t.Error("the limit was changed")
	}
}

// Charges of one call with different modes, and hits of one charge that belong together.
func TestLocalBesideOtherModes(t *testing.T) {
	f := &faulty{}
	s := newStore(t, f, Options{Mode: ratelimit.FailClosed, Local: newMemory(t), ProbeInterval: time.Hour})
	open(t, f, s)
	small, large := newLimit(t, 2), newLimit(t, 100)
	take := func() []ratelimit.Charge {
		charges := []ratelimit.Charge{
			newCharge(large, "open:3600", 1),
			{
				Hits:    []ratelimit.Hit{{Key: "local:3600", Limit: small, Cost: 1}, {Key: "local:86400", Limit: large, Cost: 1}},
				Results: make([]ratelimit.Result, 2),
			},
			newCharge(large, "closed:3600", 1),
		}
		charges[0].OnFailure, charges[1].OnFailure = ratelimit.FailOpen, ratelimit.FailLocal
		s.Take(t.Context(), charges)
		for i, want := range []ratelimit.FailureMode{ratelimit.FailOpen, ratelimit.FailLocal, ratelimit.FailClosed} {
			if charges[i].Err != nil || charges[i].Degraded != want {
				t.Errorf("charge %d: %+v", i, charges[i])
			}
		}
		return charges
	}
	if c := take()[1]; !c.Results[0].Allowed || !c.Results[1].Allowed || c.Results[1].Remaining != 49 {
		t.Errorf("first: %+v", c.Results)
	}
	// Half of 2 is used up; the other limit must not be charged for it.
	if c := take()[1]; c.Results[0].Allowed || c.Results[1].Granted != 0 || c.Results[1].Remaining != 49 {
		t.Errorf("second: %+v", c.Results)
	}
}

func TestLocalStoreThatFails(t *testing.T) {
	tests := []struct {
		name string
		mode ratelimit.FailureMode
		take func(context.Context, []ratelimit.Charge)
		want ratelimit.FailureMode
		err  error
	}{
		{"open", ratelimit.FailOpen, refuse, ratelimit.FailOpen, nil},
		{"closed", ratelimit.FailClosed, refuse, ratelimit.FailClosed, nil},
		{"local", ratelimit.FailLocal, refuse, ratelimit.FailOpen, nil},
		{"panic", ratelimit.FailClosed, func(context.Context, []ratelimit.Charge) { panic("in the local store") }, ratelimit.FailClosed, nil},
		{"conflict", ratelimit.FailOpen, func(_ context.Context, c []ratelimit.Charge) { c[0].Err = ratelimit.ErrConflict }, 0, ratelimit.ErrConflict},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, local := &faulty{}, &faulty{}
			local.behave(test.take)
			s := newStore(t, f, Options{Mode: test.mode, Local: local, ProbeInterval: time.Hour})
			open(t, f, s)
			charges := []ratelimit.Charge{newCharge(newLimit(t, 10), "key:3600", 1)}
			charges[0].OnFailure = ratelimit.FailLocal
			s.Take(t.Context(), charges)
			if c := charges[0]; c.Err != test.err || c.Degraded != test.want { //nolint:errorlint // passed through as it is
				t.Errorf("got %+v", c)
			}
		})
	}
}

// The local store gets no deadline: it is memory, and the caller's may be over.
func TestLocalAfterTheDeadline(t *testing.T) {
	f := &faulty{}
	f.behave(hang)
	s := newStore(t, f, Options{Mode: ratelimit.FailLocal, Local: newMemory(t), Timeout: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if c := one(ctx, t, s); c.Err != nil || c.Degraded != ratelimit.FailLocal || c.Results[0].Remaining != 49 {
		t.Errorf("got %+v", c)
	}
}

func drawLimit(t *rapid.T) ratelimit.Limit {
	limit := ratelimit.Limit{
		Name:      "secret",
		Algorithm: rapid.SampledFrom(ratelimit.Algorithms()).Draw(t, "algorithm"),
		Count:     rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, ratelimit.MaxLogCount), rapid.Int64Range(0, ratelimit.MaxCount)).Draw(t, "count"),
		Window:    time.Duration(rapid.Int64Range(int64(ratelimit.MinWindow/time.Microsecond), int64(ratelimit.MaxWindow/time.Microsecond)).Draw(t, "window")) * time.Microsecond,
	}
	if limit.Algorithm == ratelimit.TokenBucket || limit.Algorithm == ratelimit.LeakyBucket {
		limit.Burst = rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, ratelimit.MaxCount)).Draw(t, "burst")
	}
	return limit
}

var validLimit = rapid.Custom(drawLimit).Filter(func(l ratelimit.Limit) bool { return l.Check() == nil })

// A smaller limit is valid, allows something if the limit does, and never more than its fraction (or 1).
func TestScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := validLimit.Draw(t, "limit")
		if err := limit.Check(); err != nil {
			t.Fatal(err)
		}
		fraction := rapid.Float64Range(1e-9, 1).Draw(t, "fraction")
		var cache scaledLimits
		smaller := cache.scaled(&limit, fraction)
		if checked := *smaller; checked.Check() != nil {
			t.Fatalf("%+v is no limit: %v", checked, checked.Check())
		}
		for what, pair := range map[string][2]int64{"count": {limit.Count, smaller.Count}, "burst": {limit.Burst, smaller.Burst}} {
			if most := math.Max(float64(pair[0])*fraction, 1); float64(pair[1]) > most || (pair[0] == 0) != (pair[1] == 0) {
				t.Fatalf("%s %d became %d at %v", what, pair[0], pair[1], fraction)
			}
		}
		if smaller.Capacity() > limit.Capacity() || smaller.Window != limit.Window || smaller.Algorithm != limit.Algorithm {
			t.Fatalf("%+v became %+v", limit, *smaller)
		}
		token, perMicro := limit.Rate()
		smallToken, smallPerMicro := smaller.Rate()
		if token > 0 && limit.Count > 0 && float64(smallPerMicro)/float64(smallToken) > float64(perMicro)/float64(token)*1.002+1e-18 && smaller.Count > 1 {
			t.Fatalf("the rate of %+v rose to %d/%d from %d/%d", limit, smallPerMicro, smallToken, perMicro, token)
		}
		if again := cache.scaled(&limit, fraction); again != smaller {
			t.Fatal("it is made anew each time")
		}
		if smaller.Name != "" {
			t.Fatal("it keeps the name, which may be a caller's memory")
		}
	})
}

// A limit's address may be used for another limit, by a caller that sends its own.
func TestScaledLimitsAreFoundByValue(t *testing.T) {
	var cache scaledLimits
	limit := *newLimit(t, 100)
	if got := cache.scaled(&limit, 0.5).Count; got != 50 {
		t.Errorf("half of 100 is %d", got)
	}
	limit = *newLimit(t, 10)
	if got := cache.scaled(&limit, 0.5).Count; got != 5 {
		t.Errorf("half of 10 is %d", got)
	}
}

func TestScaledLimitsAreBounded(t *testing.T) {
	var cache scaledLimits
	for i := range int64(3 * maxScaled) {
		limit := newLimit(t, i)
		limit.Name = strconv.FormatInt(i, 10)
		cache.scaled(limit, 0.5)
		if len(cache.limits) > maxScaled {
			t.Fatalf("%d limits are remembered", len(cache.limits))
		}
	}
}

// What a batch holds of callers must not outlive the call.
func TestBatchKeepsNothing(t *testing.T) {
	s := newStore(t, &faulty{}, Options{Mode: ratelimit.FailLocal, Local: newMemory(t)})
	charges := []ratelimit.Charge{newCharge(newLimit(t, 10), "key:3600", 1)}
	charges[0].Err, charges[0].ID = errDown, "id"
	batch := &localBatch{}
	s.collect(batch, charges, 1)
	batch.release(&s.local.batches)
	for _, hit := range batch.hits[:cap(batch.hits)] {
		if hit != (ratelimit.Hit{}) {
			t.Errorf("it holds %+v", hit)
		}
	}
	for _, c := range batch.charges[:cap(batch.charges)] {
		if c.ID != "" || c.Hits != nil || c.Results != nil {
			t.Errorf("it holds %+v", c)
		}
	}
}
