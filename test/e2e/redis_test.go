package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/test/servers"
)

const (
	replicas = 3
	callers  = 300
	limit    = 1000
	// perCaller makes the callers ask for twice the limit.
	perCaller = 2 * limit / callers
)

// exactRules has a rule for each algorithm, whose window no test outlives.
func exactRules() string {
	var text strings.Builder
	text.WriteString("domain: exact\ndescriptors:\n")
	for _, algorithm := range ratelimit.Algorithms() {
		burst := ""
		if algorithm == ratelimit.LeakyBucket {
			burst = fmt.Sprintf(", burst: %d", limit)
		}
		fmt.Fprintf(&text, "  - {key: %s, limits: [{algorithm: %s, limit: %d, window: 30d%s}]}\n", algorithm, algorithm, limit, burst)
	}
	return text.String()
}

// startReplicas starts several servers with counters in one Redis, which have so much time for a call that no busy machine
// makes them fail open.
func startReplicas(t *testing.T, redis *servers.RedisServer, rules string) []rlsv3.RateLimitServiceClient {
	t.Helper()
	clients := make([]rlsv3.RateLimitServiceClient, replicas)
	for i := range clients {
		clients[i] = clientOf(servers.Weir(t, servers.WeirOptions{
			Rules: map[string]string{"rules.yaml": rules},
			Set:   map[string]string{"redis.url": "redis://" + redis.Addr(), "redis.timeout_ms": "20000", "ratelimit.fail_open": "false"},
		}))
	}
	return clients
}

// storm asks from all callers at once and returns how many requests were allowed.
func storm(t *testing.T, clients []rlsv3.RateLimitServiceClient, request *rlsv3.RateLimitRequest) int64 {
	t.Helper()
	var (
		allowed atomic.Int64
		group   sync.WaitGroup
		start   = make(chan struct{})
	)
	for i := range callers {
		group.Go(func() {
			<-start
			for range perCaller + 1 {
				reply, err := clients[i%len(clients)].ShouldRateLimit(t.Context(), request)
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				if reply.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
					allowed.Add(1)
				}
			}
		})
	}
	close(start)
	group.Wait()
	return allowed.Load()
}

func TestReplicasAdmitExactlyTheLimit(t *testing.T) {
	clients := startReplicas(t, servers.Redis(t), exactRules())
	for _, algorithm := range ratelimit.Algorithms() {
		allowed := storm(t, clients, request("exact", algorithm.String()+"="+unique("user")))
		figure(t, "%d replicas, one Redis, %d callers, limit %d, %s: %d allowed", replicas, callers, limit, algorithm, allowed)
		if allowed != limit {
			t.Errorf("%s: %d requests were allowed, want exactly %d", algorithm, allowed, limit)
		}
	}
}

func TestReplicasStayExactWhenRedisForgetsItsScripts(t *testing.T) {
	redis := servers.Redis(t)
	clients := startReplicas(t, redis, exactRules())
	for _, algorithm := range ratelimit.Algorithms() {
		request := request("exact", algorithm.String()+"="+unique("user"))
		var group sync.WaitGroup
		group.Go(func() {
			for range 20 {
				redis.FlushScripts()
			}
		})
		allowed := storm(t, clients, request)
		group.Wait()
		if allowed != limit {
			t.Errorf("%s: %d requests were allowed while scripts were flushed, want exactly %d", algorithm, allowed, limit)
		}
	}
}

// Redis is restarted, with its data of before and without scripts, between two storms on the same keys. The callers see no
// error, and what is allowed in all is what was left.
func TestReplicasStayExactWhenRedisRestarts(t *testing.T) {
	redis := servers.Redis(t)
	clients := startReplicas(t, redis, exactRules())
	const before = 300
	for _, algorithm := range ratelimit.Algorithms() {
		request := request("exact", algorithm.String()+"="+unique("user"))
		for range before {
			if !ask(t, clients[0], request) {
				t.Fatalf("%s: a request below the limit was denied", algorithm)
			}
		}
		redis.Save()
		redis.Restart()
		// Each replica finds its old connections dead: what it says until it has new ones is its failure mode, deny here.
		look := peek(request)
		for _, client := range clients {
			servers.Eventually(t, "a replica is back on Redis", func() bool { return ask(t, client, look) })
		}
		if allowed := storm(t, clients, request); allowed+before > limit {
			t.Errorf("%s: %d requests were allowed in all, want at most %d", algorithm, allowed+before, limit)
		}
	}
}
