package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirhq/weir/pkg/k1s0"
	pb "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
	"github.com/weirhq/weir/test/servers"
)

const k1s0Rules = `
domain: k1s0
descriptors:
  - {key: user, value: user-001, limits: [{algorithm: fixed_window, limit: 4, window: 30d}]}
  - {key: service, limits: [{algorithm: token_bucket, limit: 100, window: 30d}]}
---
domain: edge
descriptors: [{key: user, limits: [{limit: 1, window: 1m}]}]
`

// A user has one budget, whichever way the requests come.
func TestK1s0AndEnvoyDrawFromOneBucket(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"rules.yaml": k1s0Rules}})
	check := func() bool {
		return decoded[decision](t, call(t, weir, http.StatusOK, "POST", "/check", "", `{"scope":"user","identifier":"user-001"}`)).Allowed
	}
	envoy := func() bool { return ask(t, clientOf(weir), request("k1s0", "user=user-001")) }
	grpc := func() bool {
		reply, err := apiClient(weir).CheckRateLimit(t.Context(), &pb.CheckRateLimitRequest{Scope: "user", Identifier: "user-001"})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetAllowed()
	}
	descriptors := func() bool {
		return decoded[decision](t, call(t, weir, http.StatusOK, "POST", "/check", "",
			`{"domain":"k1s0","descriptors":[{"entries":[{"key":"user","value":"user-001"}]}]}`)).Allowed
	}
	ways := []func() bool{check, envoy, grpc, descriptors}
	for i, way := range ways {
		if !way() {
			t.Errorf("request %d of 4 was denied", i+1)
		}
	}
	for i, way := range ways {
		if way() {
			t.Errorf("way %d let a fifth request pass", i+1)
		}
	}
	reply, err := healthpb.NewHealthClient(weir.Dial()).Check(t.Context(), &healthpb.HealthCheckRequest{Service: k1s0.ServiceName})
	if err != nil || reply.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", reply, err)
	}
}

// A request that is sent again and again, to any replica, is charged once and answered alike.
func TestK1s0RequestIDIsChargedOnce(t *testing.T) {
	for name, start := range map[string]func() []*servers.WeirServer{
		"two replicas, Redis": func() []*servers.WeirServer {
			redis := servers.Redis(t)
			options := servers.WeirOptions{
				Rules: map[string]string{"rules.yaml": k1s0Rules},
				Set:   map[string]string{"redis.url": "redis://" + redis.Addr(), "redis.timeout_ms": "20000"},
			}
			return []*servers.WeirServer{servers.Weir(t, options), servers.Weir(t, options)}
		},
		"one replica, memory": func() []*servers.WeirServer {
			return []*servers.WeirServer{servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"rules.yaml": k1s0Rules}})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const times = 100
			replicas, client := start(), restClient(t, times)
			body := fmt.Sprintf(`{"scope":"service","identifier":%q,"cost":3,"request_id":%q}`, unique("service"), unique("request"))
			answers := make([]string, times)
			var group sync.WaitGroup
			begin := make(chan struct{})
			for i := range times {
				group.Go(func() {
					<-begin
					got := rest(t.Context(), client, replicas[i%len(replicas)], "POST", "/check", "", body)
					answers[i] = fmt.Sprint(got.status, " ", got.body)
				})
			}
			close(begin)
			group.Wait()
			slices.Sort(answers)
			if different := slices.Compact(slices.Clone(answers)); len(different) != 1 {
				t.Errorf("%d different answers, such as\n%s\n%s", len(different), different[0], different[1])
			}
			got := decoded[decision](t, call(t, replicas[0], http.StatusOK, "POST", "/check", "", body))
			if !got.Allowed || got.Remaining != 97 {
				t.Errorf("%d left of 100 after 3 were charged once: %+v", got.Remaining, got)
			}
			figure(t, "one request_id sent %d times at once, %s: %d different answers, %d charged", times, name, len(slices.Compact(answers)), 100-got.Remaining)
		})
	}
}

// A reset through one replica ends what the others remember of an identifier, also under a rule that is for many.
func TestK1s0ResetReachesEveryReplica(t *testing.T) {
	redis := servers.Redis(t)
	options := servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": k1s0Rules},
		Set:   map[string]string{"redis.url": "redis://" + redis.Addr(), "redis.timeout_ms": "20000", "auth.insecure": "true"},
	}
	replicas := []*servers.WeirServer{servers.Weir(t, options), servers.Weir(t, options)}
	for _, weir := range replicas {
		servers.Eventually(t, "resets are heard", func() bool { return weir.Metric("weir_deny_cache_listening") == 1 })
	}
	service := unique("service")
	check := func(weir *servers.WeirServer, cost int) decision {
		return decoded[decision](t, call(t, weir, http.StatusOK, "POST", "/check", "", fmt.Sprintf(`{"scope":"service","identifier":%q,"cost":%d}`, service, cost)))
	}
	check(replicas[0], 100)
	for _, weir := range replicas {
		for range 3 { // the second is denied without asking Redis
			if check(weir, 1).Allowed {
				t.Fatal("a check above the limit was allowed")
			}
		}
		if weir.Metric("weir_deny_cache_denied_total") < 1 {
			t.Error("a replica remembers nothing of the identifier, so that this test shows nothing")
		}
	}
	call(t, replicas[0], http.StatusOK, "POST", "/reset", "", fmt.Sprintf(`{"scope":"service","identifier":%q}`, service))
	reset := time.Now()
	for _, weir := range replicas {
		servers.Eventually(t, "the identifier is allowed again", func() bool { return check(weir, 1).Allowed })
	}
	figure(t, "2 replicas, Redis: an identifier that was reset is allowed on both after %v", time.Since(reset).Round(time.Millisecond))
}

// Checks over REST and gRPC by many callers at once, counters in Redis: exact, and soon answered.
func TestK1s0ChecksUnderLoad(t *testing.T) {
	const callers, perCaller = 100, 30
	redis := servers.Redis(t)
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": k1s0Rules},
		Set:   map[string]string{"redis.url": "redis://" + redis.Addr(), "redis.timeout_ms": "20000", "ratelimit.fail_open": "false"},
	})
	client, grpc := restClient(t, callers), apiClient(weir)
	for name, check := range map[string]func(service string) (allowed bool, err error){
		"REST": func(service string) (bool, error) {
			got := rest(t.Context(), client, weir, "POST", "/check", "", fmt.Sprintf(`{"scope":"service","identifier":%q}`, service))
			if got.status != http.StatusOK {
				return false, fmt.Errorf("%d %s", got.status, got.body)
			}
			return decoded[decision](t, got).Allowed, nil
		},
		"gRPC": func(service string) (bool, error) {
			reply, err := grpc.CheckRateLimit(t.Context(), &pb.CheckRateLimitRequest{Scope: "service", Identifier: service})
			return reply.GetAllowed(), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			service := unique("service")
			if _, err := check(unique("warm")); err != nil {
				t.Fatal(err)
			}
			var (
				group   sync.WaitGroup
				allowed atomic.Int64
				mu      sync.Mutex
				times   []time.Duration
				begin   = make(chan struct{})
			)
			for range callers {
				group.Go(func() {
					<-begin
					for range perCaller {
						start := time.Now()
						ok, err := check(service)
						took := time.Since(start)
						if err != nil {
							t.Errorf("a check failed: %v", err)
							return
						}
						if ok {
							allowed.Add(1)
						}
						mu.Lock()
						times = append(times, took)
						mu.Unlock()
					}
				})
			}
			close(begin)
			group.Wait()
			slices.Sort(times)
			figure(t, "%d callers at once over %s, Redis: p50 %v, p95 %v, p99 %v; %d of %d allowed, limit 100", callers, name,
				percentile(times, .5).Round(time.Microsecond), percentile(times, .95).Round(time.Microsecond),
				percentile(times, .99).Round(time.Microsecond), allowed.Load(), len(times))
			if allowed.Load() != 100 {
				t.Errorf("%d checks were allowed, want exactly 100", allowed.Load())
			}
			if p95 := percentile(times, .95); p95 > 2*time.Second {
				t.Errorf("p95 is %v", p95)
			}
		})
	}
}
