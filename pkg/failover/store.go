package failover

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

var (
	// ErrOpen is the error of Reset while the breaker is open.
	ErrOpen = errors.New("the store is unavailable")
	// ErrPanic is wrapped by the failure of charges during which the guarded store panicked.
	ErrPanic = errors.New("the store panicked")
)

// patience is the part of Timeout that a store must have been given before a missed deadline is its fault: 1/10.
const patience = 10

// Store guards another engine.Store: its Take never waits longer than Options.Timeout, and leaves no charge undecided that
// failed by the guarded store's fault. It relies on the guarded store's promise to return by its context's deadline and to
// write nothing afterwards.
//
// Safe for concurrent use. Call Close when it is no longer used.
type Store struct {
	guarded engine.Store
	options Options
	breaker *breaker
	outage  outage
	local   local
	uneven  quiet // about failures while the breaker is closed
	panics  quiet
	taken   atomic.Uint64
}

var _ engine.Store = (*Store)(nil)

// New returns a Store around guarded. The error wraps ErrOptions and says what to write instead.
func New(guarded engine.Store, options Options) (*Store, error) {
	options = options.withDefaults()
	if guarded == nil {
		return nil, fmt.Errorf("%w: there is no store to guard", ErrOptions)
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	s := &Store{guarded: guarded, options: options}
	s.outage.options = &s.options
	s.local.store, s.local.fraction = options.Local, options.Fraction
	s.breaker = newBreaker(options.Failures, options.Timeout, options.ProbeInterval, s.probe, &s.outage)
	return s, nil
}

// State returns the breaker's state.
func (s *Store) State() State { return s.breaker.current() }

// Degraded returns how many charges were answered by a failure mode since the Store was made.
func (s *Store) Degraded() uint64 { return s.taken.Load() }

// Take decides each charge by the guarded store, or else by the charge's failure mode, which Charge.Degraded then tells.
//
// An answer by FailOpen has Granted as asked and Remaining as if the counter had never been used; one by FailClosed has
// nothing left and asks to come back after a second. Neither counts anything. One by FailLocal is the local store's, of a
// limit that is smaller by Options.Fraction.
func (s *Store) Take(ctx context.Context, charges []ratelimit.Charge) {
	if len(charges) == 0 {
		return
	}
	epoch, ok := s.breaker.allow()
	if !ok {
		for i := range charges {
			charges[i].Err = ErrOpen
		}
		s.answer(charges)
		return
	}
	if err := ctx.Err(); err != nil {
		for i := range charges {
			charges[i].Err = err
		}
		if !errors.Is(err, context.Canceled) {
			s.answer(charges)
		}
		return
	}

	start := time.Now()
	call, cancel, impatient := s.bounded(ctx, start)
	s.guard(call, charges)
	cancel()
	end := time.Now()

	failed, cause := blame(charges)
	switch {
	case failed == 0:
		s.breaker.succeeded(epoch, end)
	case errors.Is(ctx.Err(), context.Canceled):
		failed = 0
	case failed < len(charges):
		s.breaker.succeeded(epoch, end)
		s.answer(charges)
		s.grumble(cause, end)
	default:
		if !impatient || !timedOut(cause) {
			s.breaker.failed(epoch, end, cause)
		}
		s.answer(charges)
		s.grumble(cause, end)
	}
	if s.options.OnTake != nil {
		s.options.OnTake(end.Sub(start), failed, len(charges))
	}
}

// Reset makes the keys as never used, in the local store first and then in the guarded one. While the breaker is open it
// fails with ErrOpen, the local store's part done. Its failures tell the breaker nothing.
func (s *Store) Reset(ctx context.Context, keys []string) error {
	if s.options.Local != nil {
		if err := s.options.Local.Reset(ctx, keys); err != nil {
			return fmt.Errorf("reset the local counters: %w", err)
		}
	}
	if _, ok := s.breaker.allow(); !ok {
		return ErrOpen
	}
	call, cancel, _ := s.bounded(ctx, time.Now())
	defer cancel()
	return s.guarded.Reset(call, keys)
}

// Close stops probing and waits until a probe that is under way has returned, at most Options.Timeout. It does not close
// the stores, which are the caller's. Take may still be called; the breaker stays as it is then.
func (s *Store) Close() error {
	s.breaker.close()
	return nil
}

// bounded returns ctx with the store's deadline, unless ctx's own is earlier. impatient tells that ctx's own leaves the
// store too little time to be blamed for missing it.
func (s *Store) bounded(ctx context.Context, now time.Time) (call context.Context, cancel context.CancelFunc, impatient bool) {
	limit := now.Add(s.options.Timeout)
	if own, ok := ctx.Deadline(); ok && own.Before(limit) {
		return ctx, func() {}, own.Sub(now) < s.options.Timeout/patience
	}
	call, cancel = context.WithDeadline(ctx, limit)
	return call, cancel, false
}

// guard calls the guarded store. A panic there fails all charges, whatever was decided before it.
func (s *Store) guard(ctx context.Context, charges []ratelimit.Charge) {
	defer s.recovered(charges)
	s.guarded.Take(ctx, charges)
}

// recovered, deferred around a store's Take, turns its panic into a failure of all charges.
func (s *Store) recovered(charges []ratelimit.Charge) {
	value := recover()
	if value == nil {
		return
	}
	if s.options.OnPanic != nil {
		s.options.OnPanic(value)
	}
	if unsaid, ok := s.panics.may(time.Now()); ok {
		s.options.Logger.Error("the rate limit store panicked", "panic", fmt.Sprint(value), "stack", string(debug.Stack()), "unsaid", unsaid)
	}
	for i := range charges {
		charges[i].Err = fmt.Errorf("%w: %v", ErrPanic, value)
	}
}

// blame counts the charges that failed by the store's fault and returns the first one's error.
func blame(charges []ratelimit.Charge) (failed int, cause error) {
	for i := range charges {
		if err := charges[i].Err; err != nil && blamed(err) {
			if failed++; failed == 1 {
				cause = err
			}
		}
	}
	return failed, cause
}

// blamed reports whether an error of a charge is the store's fault.
func blamed(err error) bool {
	return !errors.Is(err, ratelimit.ErrConflict) && !errors.Is(err, ratelimit.ErrLimit)
}

func timedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// grumble logs a failure that leaves the breaker closed, now and then.
func (s *Store) grumble(cause error, now time.Time) {
	if s.breaker.current() != Closed {
		return
	}
	if unsaid, ok := s.uneven.may(now); ok {
		s.options.Logger.Warn("the rate limit store could not decide", "error", cause, "unsaid", unsaid)
	}
}
