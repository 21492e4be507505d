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

// patience is the part of Timeout that a store must have been given before no answer is its fault: 1/10.
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
	s.local.store, s.local.fraction = options.Local, options.Fraction
	s.breaker = newBreaker(options.Failures, options.Timeout, options.ProbeInterval, s.probe, s)
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

	if !engine.Waiting(ctx) {
		for i := range charges {
			charges[i].Err = engine.ErrPostponed
		}
		return
	}

	start := time.Now()
	call, cancel := s.bounded(ctx, start)
	s.guard(call, charges)
	cancel()
	took := time.Since(start)
	end := start.Add(took)

	found := s.judge(charges)
	switch {
	case found.decided > 0:
		s.breaker.succeeded(epoch, end)
	case found.blame != nil && !s.hasty(ctx, took, found.blame):
		s.breaker.failed(epoch, end, found.blame)
	}
	if found.failed > 0 && errors.Is(ctx.Err(), context.Canceled) {
		found.failed = 0 // the caller has left: nobody waits for an answer
	}
	if found.failed > 0 {
		s.answer(charges)
		s.grumble(found.cause, end)
	}
	if s.options.OnTake != nil {
		s.options.OnTake(took, found.failed, len(charges))
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
	call, cancel := s.bounded(ctx, time.Now())
	defer cancel()
	return s.guarded.Reset(call, keys)
}

// Close stops probing and waits until a probe that is under way has returned, at most Options.Timeout. It does not close
// the stores, which are the caller's. Take may still be called; the breaker stays as it is then.
func (s *Store) Close() error {
	s.breaker.close()
	return nil
}

// bounded returns ctx with the store's deadline, unless ctx's own is earlier or the store has one by itself.
func (s *Store) bounded(ctx context.Context, now time.Time) (context.Context, context.CancelFunc) {
	if s.options.Punctual {
		return ctx, func() {}
	}
	limit := now.Add(s.options.Timeout)
	if own, ok := ctx.Deadline(); ok && own.Before(limit) {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, limit)
}

// hasty reports whether a call failed only because its caller had no patience. One that waited longer says something about
// the store: gateways give up, and cancel, long before a store that hangs has missed its own deadline.
func (s *Store) hasty(ctx context.Context, waited time.Duration, err error) bool {
	return waited < s.options.Timeout/patience && (ctx.Err() != nil || timedOut(err))
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

// verdict is what the charges say after a call of the guarded store.
type verdict struct {
	decided int   // by the store
	failed  int   // charges to answer by their failure mode
	cause   error // of the first of these
	blame   error // the first that says that the store does not work
}

func (s *Store) judge(charges []ratelimit.Charge) verdict {
	var found verdict
	for i := range charges {
		err := charges[i].Err
		switch {
		case err == nil, errors.Is(err, ratelimit.ErrConflict):
			found.decided++
		case !answerable(err):
		default:
			if found.failed++; found.failed == 1 {
				found.cause = err
			}
			if found.blame == nil && s.options.Blame(err) {
				found.blame = err
			}
		}
	}
	return found
}

// answerable reports whether a charge that has this error is answered by its failure mode. The other errors are the
// caller's own, and stay.
func answerable(err error) bool {
	return err != nil && !ratelimit.CallersOwn(err)
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
