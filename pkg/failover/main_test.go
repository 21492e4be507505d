package failover

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("connection refused")

// faulty is a store with faults that a real one shows only by chance. It grants everything while take is nil.
type faulty struct {
	take    atomic.Pointer[func(ctx context.Context, charges []ratelimit.Charge)]
	calls   atomic.Int64
	running atomic.Int64
	most    atomic.Int64 // calls at once
	resets  atomic.Int64
}

func (f *faulty) Take(ctx context.Context, charges []ratelimit.Charge) {
	f.calls.Add(1)
	if n := f.running.Add(1); n > f.most.Load() {
		f.most.Store(n)
	}
	defer f.running.Add(-1)
	if take := f.take.Load(); take != nil {
		(*take)(ctx, charges)
		return
	}
	grant(ctx, charges)
}

func (f *faulty) Reset(context.Context, []string) error {
	f.resets.Add(1)
	return nil
}

func (f *faulty) behave(take func(ctx context.Context, charges []ratelimit.Charge)) {
	if take == nil {
		f.take.Store(nil)
		return
	}
	f.take.Store(&take)
}

func grant(_ context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		for j := range charges[i].Results {
			charges[i].Results[j] = ratelimit.Result{Allowed: true, Granted: charges[i].Hits[j].Cost, Remaining: 7}
		}
	}
}

func refuse(_ context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		charges[i].Err = errDown
	}
}

// hang answers nothing until its deadline, as a store behind a cable that was pulled.
func hang(ctx context.Context, charges []ratelimit.Charge) {
	<-ctx.Done()
	for i := range charges {
		charges[i].Err = ctx.Err()
	}
}

func newLimit(t testing.TB, count int64) *ratelimit.Limit {
	t.Helper()
	limit := &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: count, Window: time.Hour}
	if err := limit.Check(); err != nil {
		t.Fatal(err)
	}
	return limit
}

func newCharge(limit *ratelimit.Limit, key string, cost int64) ratelimit.Charge {
	return ratelimit.Charge{
		Hits:    []ratelimit.Hit{{Key: key, Limit: limit, Cost: cost}},
		Results: make([]ratelimit.Result, 1),
	}
}

func newStore(t testing.TB, guarded engine.Store, options Options) *Store {
	t.Helper()
	s, err := New(guarded, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// one takes a single charge of cost 1 of a limit of 100.
func one(ctx context.Context, t testing.TB, s *Store) ratelimit.Charge {
	t.Helper()
	charges := []ratelimit.Charge{newCharge(newLimit(t, 100), "key:3600", 1)}
	s.Take(ctx, charges)
	return charges[0]
}

// open lets the store fail until the breaker is open.
func open(t testing.TB, f *faulty, s *Store) {
	t.Helper()
	f.behave(refuse)
	for range 2 * DefaultFailures {
		one(t.Context(), t, s)
	}
	if got := s.State(); got != Open {
		t.Fatalf("the breaker is %v after %d failures", got, 2*DefaultFailures)
	}
}

// logBuffer holds log lines that several goroutines write.
type logBuffer struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

func newLogger(l *logBuffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
