package stats

import (
	"context"
	"time"
)

// Flusher sends what the counters grew by.
type Flusher struct {
	stats  *Stats
	client *Client
}

// NewFlusher returns what sends s to client. There is at most one for each Stats.
func (s *Stats) NewFlusher(client *Client) *Flusher {
	s.mu.Lock()
	s.flushed = true
	s.mu.Unlock()
	s.durations.sample.Store(new(sample))
	return &Flusher{stats: s, client: client}
}

// Run flushes after each interval until ctx ends, and once more then.
func (f *Flusher) Run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.Flush()
		case <-ctx.Done():
			f.Flush()
			return
		}
	}
}

// Flush sends what the counters grew by since the last time. It waits for the server a second or two at most. One call at a
// time.
func (f *Flusher) Flush() {
	s := f.stats
	for _, c := range s.service.counters() {
		f.send(c.name, c.counter)
	}
	all, unknown := s.series()
	s.mu.Lock()
	all = append(all, s.retired...)
	s.retired = nil
	s.mu.Unlock()
	for _, each := range all {
		for i := range each.counts {
			if c := &each.counts[i]; c.Load() != c.sent {
				f.send(rulePrefix+each.name+"."+counterNames[i], c)
			}
		}
	}
	for _, domain := range unknown {
		f.send(rulePrefix+domain.name+".domain_not_found", &domain.count)
	}
	kept, rate := s.durations.sample.Swap(new(sample)).all()
	for _, elapsed := range kept {
		f.client.timing(serverPrefix+"response_time", elapsed, rate)
	}
	f.client.flush()
}

func (f *Flusher) send(name string, c *counter) {
	if delta := c.grown(); delta > 0 {
		f.client.count(name, delta)
	}
}
