package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
)

// Harness makes the stores under test. A store closes itself with t.Cleanup.
type Harness struct {
	// New returns an empty store that takes the time from now whenever it is called.
	New func(t testing.TB, now func() time.Time) engine.Store
	// Replicas returns n stores that share their counters, as the processes of one deployment do. nil: the store's
	// counters are its own.
	Replicas func(t testing.TB, n int, now func() time.Time) []engine.Store
	// IDPeriod is how long the stores remember a charge's ID.
	IDPeriod time.Duration
	// Elapse, if not nil, is called after the clock moved by d, for stores in which IDs expire by another clock.
	Elapse func(t testing.TB, store engine.Store, d time.Duration)
}

// Run checks that the stores which h makes keep engine.Store's contract.
func Run(t *testing.T, h Harness) {
	t.Helper()
	t.Run("golden", func(t *testing.T) { Golden(t, h.New) })
	t.Run("concurrent", func(t *testing.T) { h.concurrent(t) })
	t.Run("groups", func(t *testing.T) { h.groups(t) })
	t.Run("charges", func(t *testing.T) { h.charges(t) })
	t.Run("ids", func(t *testing.T) { h.ids(t) })
	t.Run("keys", func(t *testing.T) { h.keys(t) })
	t.Run("context", func(t *testing.T) { h.context(t) })
}

// replicas returns as many stores as the tests have, sharing their counters: one of them several times if there is no
// other way.
func (h *Harness) replicas(t *testing.T, now func() time.Time) []engine.Store {
	t.Helper()
	if h.Replicas != nil {
		return h.Replicas(t, stores, now)
	}
	return slices.Repeat([]engine.Store{h.New(t, now)}, stores)
}
