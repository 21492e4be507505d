package algo_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/algo"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/storetest"
)

// bare is the least store that algo can run in.
type bare struct {
	now    func() time.Time
	states map[string]algo.State
}

func (b *bare) Take(_ context.Context, charges []ratelimit.Charge) {
	for _, c := range charges {
		states := make([]algo.State, len(c.Hits))
		for i, hit := range c.Hits {
			states[i] = b.states[hit.Key]
		}
		algo.Take(c.Hits, states, b.now().UnixMicro(), c.Results)
		for i, hit := range c.Hits {
			b.states[hit.Key] = states[i]
		}
	}
}

func (b *bare) Reset(_ context.Context, keys []string) error {
	for _, key := range keys {
		delete(b.states, key)
	}
	return nil
}

func TestGolden(t *testing.T) {
	open := func(_ testing.TB, now func() time.Time) engine.Store {
		return &bare{now: now, states: make(map[string]algo.State)}
	}
	for _, algorithm := range ratelimit.Algorithms() {
		storetest.Golden(t, open, algorithm.String())
	}
}
