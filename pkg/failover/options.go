package failover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// Defaults of Options.
const (
	DefaultTimeout       = 100 * time.Millisecond
	DefaultFraction      = 0.5
	DefaultFailures      = 5
	DefaultProbeInterval = 250 * time.Millisecond
	DefaultProbePrefix   = "ratelimit:"
)

// ErrOptions is wrapped by every error of New.
var ErrOptions = errors.New("invalid failover options")

// Options choose how a Store guards. The zero value is usable.
type Options struct {
	// Timeout bounds each call to the guarded store; a caller's earlier deadline still holds. 0: DefaultTimeout.
	Timeout time.Duration
	// Punctual says that the guarded store returns within Timeout by itself. Its calls get the caller's context as it is then,
	// which saves a timer for each of them.
	Punctual bool
	// Mode answers the failed charges that have no mode of their own. FailureDefault: ratelimit.FailOpen.
	Mode ratelimit.FailureMode

	// Local decides charges whose mode is FailLocal, at Fraction of their limits. It must not be the guarded store, must not
	// block, and must be set if Mode is FailLocal. If it is nil, a charge that asks for FailLocal is answered by Mode.
	Local engine.Store
	// Fraction of a limit's count and burst that Local allows, above 0 and at most 1: with N replicas that each decide
	// alone, 1/N keeps the sum within the limit. A limit that allows anything still allows 1. 0: DefaultFraction.
	Fraction float64

	// Blame reports whether an error of a charge says that the store does not work, and not only that this charge cannot be
	// decided. Nil: every error does. It is not asked about the errors that pass through.
	Blame func(error) bool
	// Failures is how many calls in a row must fail to open the breaker. 0: DefaultFailures.
	Failures int
	// ProbeInterval is the time between two probes while the breaker is open, at least 1 ms; up to half of it is added at
	// random. Callers get the store back at most 1.5 intervals and one probe after its return. 0: DefaultProbeInterval.
	ProbeInterval time.Duration
	// Probe reports whether the guarded store works again; it gets a context that ends after Timeout. It should do what a
	// charge does: a store that answers a ping but cannot write is not back. Nil: charges on ProbeKeys counters of the
	// guarded store, of which one must be decided.
	Probe func(context.Context) error
	// ProbePrefix begins the keys of the built-in probe, so that an access list of the store that allows only weir's own
	// keys allows them too. Empty: DefaultProbePrefix.
	ProbePrefix string

	// Logger is told once when the breaker opens, once when the store is back, and at most every ten seconds about charges
	// that fail while the breaker is closed. Nil: nothing is logged.
	Logger *slog.Logger
	// OnStateChange is called at each change of the breaker's state, in the order of the changes and one at a time. It must
	// be quick and must not call the Store.
	OnStateChange func(from, to State)
	// OnTake is called after each call of the guarded store, with its duration and with how many of its charges failed. It
	// must be quick and safe for concurrent use.
	OnTake func(elapsed time.Duration, failed, charges int)
	// OnPanic is called with what the guarded store panicked with. It must be safe for concurrent use.
	OnPanic func(value any)
}

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Mode == ratelimit.FailureDefault {
		o.Mode = ratelimit.FailOpen
	}
	if o.Fraction == 0 {
		o.Fraction = DefaultFraction
	}
	if o.Blame == nil {
		o.Blame = func(error) bool { return true }
	}
	if o.Failures == 0 {
		o.Failures = DefaultFailures
	}
	if o.ProbeInterval == 0 {
		o.ProbeInterval = DefaultProbeInterval
	}
	if o.ProbePrefix == "" {
		o.ProbePrefix = DefaultProbePrefix
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) check() error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...)
	}
	switch {
	case o.Timeout < 0:
		return fault("timeout %v is negative: use a duration such as %v", o.Timeout, DefaultTimeout)
	case o.Mode > ratelimit.FailLocal:
		return fault("unknown failure mode %d: use allow, deny or local", o.Mode)
	case o.Mode == ratelimit.FailLocal && o.Local == nil:
		return fault("failure mode local needs a local store: give one, or use allow or deny")
	case !(o.Fraction > 0 && o.Fraction <= 1): // also refuses NaN
		return fault("fallback fraction %v is out of range: use more than 0 and at most 1", o.Fraction)
	case o.Failures < 0:
		return fault("%d failures are out of range: use at least 1", o.Failures)
	case o.ProbeInterval < time.Millisecond:
		return fault("probe interval %v is too short: use at least %v", o.ProbeInterval, time.Millisecond)
	}
	return nil
}
