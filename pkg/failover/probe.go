package failover

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// ProbeKeys is how many counters the built-in probe charges: enough that they lie on every node of a usual cluster, because
// one node that is still away must not keep all others away. One charge decided is enough, as it is for a caller's call.
const ProbeKeys = 16

var errProbeIncomplete = errors.New("the probe was not answered")

// probe asks the guarded store whether it is back, within Options.Timeout.
func (s *Store) probe(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	if s.options.Probe == nil {
		return s.probeByCharges(ctx)
	}
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("%w: %v", ErrPanic, value)
		}
	}()
	return s.options.Probe(ctx)
}

func (s *Store) probeByCharges(ctx context.Context) error {
	limit := &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: ratelimit.MaxCount, Window: time.Second}
	if err := limit.Check(); err != nil {
		return err
	}
	charges := make([]ratelimit.Charge, ProbeKeys)
	for i := range charges {
		key := s.options.ProbePrefix + "weir:probe=" + strconv.Itoa(i) + ":1"
		charges[i].Hits = []ratelimit.Hit{{Key: key, Limit: limit, Cost: 1}}
		charges[i].Results = make([]ratelimit.Result, 1)
	}
	s.guard(ctx, charges)
	found := s.judge(charges)
	if found.decided > 0 {
		return nil
	}
	return errors.Join(errProbeIncomplete, found.cause)
}
