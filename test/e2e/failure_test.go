package e2e

import (
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirhq/weir/test/servers"
)

const failureRules = `
domain: failure
descriptors:
  - key: open
    limits: [{algorithm: fixed_window, limit: 3, window: 30d}]
  - key: closed
    on_store_failure: deny
    limits: [{algorithm: fixed_window, limit: 3, window: 30d}]
  - key: local
    on_store_failure: local
    limits: [{algorithm: fixed_window, limit: 10, window: 30d}]
  - key: load
    limits: [{algorithm: fixed_window, limit: 1, window: 30d}]
`

// The store deadline of these tests, and what a busy machine may add to it before an answer counts as late.
const (
	storeDeadline = 100 * time.Millisecond
	slack         = 900 * time.Millisecond
)

func startGuarded(t *testing.T, redis *servers.RedisServer) *servers.WeirServer {
	t.Helper()
	return servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": failureRules},
		Set:   map[string]string{"redis.url": "redis://" + redis.Addr()},
	})
}

func awaitBreaker(t *testing.T, weir *servers.WeirServer, state string) {
	t.Helper()
	servers.Eventually(t, "the breaker is "+state, func() bool {
		return weir.Metric(`weir_store_breaker_state{state="`+state+`"}`) == 1
	})
}

func TestRedisKilledUnderLoad(t *testing.T) {
	redis := servers.Redis(t)
	weir := startGuarded(t, redis)
	client := clientOf(weir)
	one := request("failure", "load="+unique("user"))
	if !ask(t, client, one) || ask(t, client, one) {
		t.Fatal("the limit of 1 does not hold")
	}
	clients := []rlsv3.RateLimitServiceClient{client, clientOf(weir)}

	during := startLoad(t, clients, 16, func() *rlsv3.RateLimitRequest { return one })
	redis.Kill()
	awaitBreaker(t, weir, "open")
	times := during.Stop()
	slowest := times[len(times)-1]
	figure(t, "Redis killed under load: slowest of %d answers %v (store deadline %v)", len(times), slowest.Round(time.Microsecond), storeDeadline)
	if slowest > storeDeadline+slack {
		t.Errorf("the slowest answer took %v", slowest)
	}
	if during.Allowed.Load() == 0 {
		t.Error("nothing was let pass while Redis was dead")
	}

	alone := startLoad(t, clients[:1], 1, func() *rlsv3.RateLimitRequest { return one })
	servers.Eventually(t, "a thousand answers came with the breaker open", func() bool { return alone.Allowed.Load() > 1000 })
	open := alone.Stop()
	figure(t, "breaker open, one caller: p50 %v, p99 %v of %d answers", percentile(open, .5), percentile(open, .99), len(open))

	// The counter is lost with the Redis that held it: its return shows by the second of two requests.
	start := time.Now()
	redis.Restart()
	ready := time.Now()
	again := request("failure", "load="+unique("user"))
	servers.Eventually(t, "limits hold again", func() bool { return !ask(t, client, again) })
	figure(t, "back on Redis %v after it answered again (%v after its start)",
		time.Since(ready).Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	if took := time.Since(ready); took > 2*time.Second+slack {
		t.Errorf("weir was back on Redis after %v, want 2 s", took)
	}
	awaitBreaker(t, weir, "closed")

	log := weir.Process().Log()
	for _, line := range []string{"the rate limit store is unavailable", "the rate limit store is back"} {
		if n := strings.Count(log, line); n != 1 {
			t.Errorf("%d lines say that %s, want 1:\n%s", n, line, log)
		}
	}
}

func TestRedisThatHangs(t *testing.T) {
	redis := servers.Redis(t)
	weir := startGuarded(t, redis)
	client := clientOf(weir)
	one := request("failure", "load="+unique("user"))
	ask(t, client, one)

	hanging := startLoad(t, []rlsv3.RateLimitServiceClient{client}, 16, func() *rlsv3.RateLimitRequest { return one })
	redis.Pause()
	awaitBreaker(t, weir, "open")
	times := hanging.Stop()
	slowest := times[len(times)-1]
	figure(t, "Redis paused under load: slowest of %d answers %v (store deadline %v)", len(times), slowest.Round(time.Microsecond), storeDeadline)
	if slowest > storeDeadline+slack {
		t.Errorf("the slowest answer took %v", slowest)
	}
	redis.Resume()
	servers.Eventually(t, "limits hold again", func() bool { return !ask(t, client, one) })
}

func TestFailureModesOfRules(t *testing.T) {
	redis := servers.Redis(t)
	weir := startGuarded(t, redis)
	client := clientOf(weir)
	redis.Kill()
	for range 10 {
		if !ask(t, client, request("failure", "open=x")) {
			t.Fatal("a rule without a mode of its own denied: the server's default is allow")
		}
	}
	awaitBreaker(t, weir, "open")
	if ask(t, client, request("failure", "closed=x")) {
		t.Error("a rule with on_store_failure: deny let a request pass")
	}
	allowed := 0
	for range 20 {
		if ask(t, client, request("failure", "local=x")) {
			allowed++
		}
	}
	if allowed != 5 {
		t.Errorf("on_store_failure: local let %d requests pass, want 5, half of the limit", allowed)
	}
	for outcome, rule := range map[string]string{"failed_open": "open", "failed_closed": "closed", "local": "local"} {
		series := `weir_decisions_total{domain="failure",outcome="` + outcome + `",rule="` + rule + `",value=""}`
		if weir.Metric(series) == 0 {
			t.Errorf("%s is 0", series)
		}
	}
	if status, body := weir.Get("/readyz"); status != 200 || !strings.Contains(body, `"name":"redis","ready":false`) {
		t.Errorf("/readyz is %d %s: want 200, and redis named as not ready", status, body)
	}
}

func TestStartWithRedisDown(t *testing.T) {
	redis := servers.Redis(t)
	redis.Kill()
	weir := startGuarded(t, redis)
	client := clientOf(weir)
	one := request("failure", "load="+unique("user"))
	if !ask(t, client, one) {
		t.Error("a request was denied while Redis was down")
	}
	redis.Restart()
	servers.Eventually(t, "limits hold once Redis is there", func() bool { return !ask(t, client, one) })
}
