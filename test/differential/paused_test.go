package differential

import (
	"strconv"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const (
	pause   = 10 * time.Second
	callers = 20
	between = 10 * time.Millisecond // two questions of a caller
	// noise is what a busy machine may add to weir's deadline of 100 ms.
	noise = 900 * time.Millisecond
)

// While Redis hangs, weir's callers get their answers within its deadline; those of envoyproxy/ratelimit wait for its timeout.
func TestRedisPaused(t *testing.T) {
	const rules = "domain: edge\ndescriptors:\n    - key: user\n      rate_limit: {unit: hour, requests_per_unit: 1000000}\n"
	listing := []string{"edge.user: unit=HOUR requests_per_unit=1000000, shadow_mode: false, quota_mode: false"}
	slowest := map[string]time.Duration{}
	for name, path := range map[string]string{"weir": candidate(t), "envoyproxy/ratelimit": reference(t)} {
		s := start(t, name, path, nil)
		s.load(rules, listing)
		if got := s.ask(byUser(0)); got.err != nil {
			t.Fatalf("%s: %v", name, got.err)
		}
		slowest[name] = s.slowestWhilePaused()
	}
	t.Logf("figure: Redis paused for %v, %d callers: slowest answer of weir %v, of envoyproxy/ratelimit %v",
		pause, callers, slowest["weir"].Round(time.Millisecond), slowest["envoyproxy/ratelimit"].Round(time.Millisecond))
	if most := 100*time.Millisecond + noise; slowest["weir"] > most {
		t.Errorf("weir's slowest answer took %v, more than %v", slowest["weir"], most)
	}
}

// slowestWhilePaused stops Redis for a while, asks all the time, and returns how long the slowest answer took. Answers that end
// after Redis has gone on count too.
func (s *server) slowestWhilePaused() time.Duration {
	s.t.Helper()
	s.redis.Pause()
	began := time.Now()
	var mu sync.Mutex
	var slowest time.Duration
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for time.Since(began) < pause {
				asked := time.Now()
				s.ask(byUser(caller))
				mu.Lock()
				slowest = max(slowest, time.Since(asked))
				mu.Unlock()
				time.Sleep(between)
			}
		})
	}
	time.Sleep(pause)
	s.redis.Resume()
	group.Wait()
	return slowest
}

func byUser(n int) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: strconv.Itoa(n)}}},
	}}
}
