package embed

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/failover"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// rarely is the pause between two looks at a store that never comes.
const rarely = 24 * time.Hour

var errAway = errors.New("there is no shared store here")

// away is a store that never decides, so that its guard does.
type away struct{}

var _ engine.Store = away{}

// Take fails every charge.
func (away) Take(_ context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		charges[i].Err = errAway
	}
}

// Reset has nothing to forget.
func (away) Reset(context.Context, []string) error { return nil }

// standIn opens the store of an Engine with LocalOnly: counters in memory that allow a part of each limit.
func (e *Engine) standIn(options Options) (engine.Store, error) {
	memory := memstore.New(memstore.Options{MaxKeys: cmp.Or(options.MaxKeys, DefaultMaxKeys)})
	e.close = append(e.close, memory.Close)
	store, err := failover.New(away{}, failover.Options{
		Mode: ratelimit.FailLocal, Local: memory, Fraction: options.Fraction,
		// One failure opens the breaker, and nothing closes it. The store is away by design, which is not worth a line.
		Failures: 1, Probe: func(context.Context) error { return errAway }, ProbeInterval: rarely,
	})
	if err != nil {
		return nil, err
	}
	e.close = append(e.close, func() { _ = store.Close() })
	return store, nil
}
