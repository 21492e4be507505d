package engine_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// ledger is a Store in which time stands still: each key has what is left of its limit. It remembers what it was asked.
type ledger struct {
	mu       sync.Mutex
	used     map[string]int64
	answered map[string][]ratelimit.Result
	asked    []ratelimit.Charge
	takes    int
	fail     func(*ratelimit.Charge) // after a charge was decided
}

func (s *ledger) Take(_ context.Context, charges []ratelimit.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes++
	for i := range charges {
		c := &charges[i]
		s.asked = append(s.asked, copied(c))
		s.take(c)
		if s.fail != nil {
			s.fail(c)
		}
	}
}

func (s *ledger) take(c *ratelimit.Charge) {
	if c.ID != "" {
		payload := ""
		for _, h := range c.Hits {
			payload += h.Key + " "
		}
		for id, results := range s.answered {
			switch {
			case id == c.ID+" "+payload:
				copy(c.Results, results)
				return
			case strings.HasPrefix(id, c.ID+" "):
				c.Err = ratelimit.ErrConflict
				return
			}
		}
		defer func() {
			if s.answered == nil {
				s.answered = map[string][]ratelimit.Result{}
			}
			s.answered[strings.Clone(c.ID+" "+payload)] = slices.Clone(c.Results)
		}()
	}
	all := true
	for i, h := range c.Hits {
		left := h.Limit.Capacity() - s.used[h.Key]
		c.Results[i] = ratelimit.Result{Allowed: h.Cost < 0 || max(h.Cost, 1) <= left, ResetAfter: h.Limit.Window}
		all = all && c.Results[i].Allowed
	}
	for i, h := range c.Hits {
		r := &c.Results[i]
		left := h.Limit.Capacity() - s.used[h.Key]
		switch {
		case h.Cost < 0:
			r.Granted = -min(-h.Cost, s.used[h.Key])
		case all:
			r.Granted = h.Cost
		case h.Partial && len(c.Hits) == 1:
			r.Granted = max(0, min(h.Cost, left))
		}
		if !r.Allowed {
			r.RetryAfter = time.Duration(h.Cost) * time.Second
		}
		if r.Granted != 0 {
			if s.used == nil {
				s.used = map[string]int64{}
			}
			s.used[strings.Clone(h.Key)] += r.Granted
		}
		r.Remaining = max(0, h.Limit.Capacity()-s.used[h.Key])
	}
}

func (s *ledger) Reset(_ context.Context, keys []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.used, key)
	}
	return nil
}

// keys returns all counters that are not as if never used.
func (s *ledger) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.used))
}

func copied(c *ratelimit.Charge) ratelimit.Charge {
	out := ratelimit.Charge{ID: strings.Clone(c.ID), Cancelled: c.Cancelled, OnFailure: c.OnFailure}
	for _, h := range c.Hits {
		h.Key = strings.Clone(h.Key)
		out.Hits = append(out.Hits, h)
	}
	return out
}
