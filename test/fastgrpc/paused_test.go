package fastgrpc

import (
	"context"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/test/servers"
)

const pausedRules = `
domain: edge
descriptors:
  - {key: user, limits: [{algorithm: fixed_window, limit: 1000, window: 30d}]}
  - {key: small, limits: [{algorithm: fixed_window, limit: 1, window: 30d}]}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: friend, action: allow}
  - {key: foe, action: deny}
`

func asking(key, value string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: value}},
	}}}
}

// While Redis hangs, calls that do not need it are answered at once, on the connection on which others wait; and what is
// cancelled before it was sent to Redis is not charged.
func TestCallsThatNeedNoStoreDoNotWaitForIt(t *testing.T) {
	redis := servers.Redis(t)
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": pausedRules}, Set: map[string]string{
		"redis.url": "redis://" + redis.Addr(), "redis.timeout_ms": "30000", "failure.breaker.failures": "1000000",
	}})
	client := rlsv3.NewRateLimitServiceClient(connect(t, weir.Fast()))
	call := func(ctx context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		return client.ShouldRateLimit(ctx, request)
	}
	must := func(request *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
		t.Helper()
		reply, err := call(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	must(asking("user", "warm"))
	servers.Eventually(t, "the deny cache listens", func() bool { return weir.Metric("weir_deny_cache_listening") == 1 })
	must(asking("small", "x"))
	must(asking("small", "x")) // denied, and remembered for a second

	redis.Pause()
	defer redis.Resume() // again, if all goes well
	// The denied client first: it is remembered for a second only.
	waiting := make(chan error, 100)
	ask := func(ctx context.Context, value string) {
		go func() {
			_, err := call(ctx, asking("user", value))
			waiting <- err
		}()
	}
	const stuck, queued = 4, 20 // all that a connection may have in its store at once, and more
	free := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			begun := time.Now()
			reply := must(asking(key, "x"))
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%s took %v while Redis hangs", key, took)
			}
			over := reply.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT
			if want := key == "foe" || key == "small"; over != want {
				t.Errorf("%s: %v", key, reply)
			}
		}
	}
	ask(t.Context(), "stuck")
	free("small", "free", "friend", "foe", "none")
	for range stuck - 1 {
		ask(t.Context(), "stuck")
		for range 20 {
			free("free")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range queued {
		ask(ctx, "queued")
	}
	for range 50 {
		free("free", "friend", "foe", "none")
	}
	cancel()
	for range queued {
		if err := <-waiting; status.Code(err) != codes.Canceled {
			t.Errorf("a call that was cancelled ended with %v", err)
		}
	}
	free("free") // so the server knows of the cancellations
	redis.Resume()
	for range stuck {
		if err := <-waiting; err != nil {
			t.Error(err)
		}
	}
	for value, charged := range map[string]uint32{"stuck": stuck, "queued": 0} {
		if got := must(asking("user", value)).GetStatuses()[0].GetLimitRemaining(); got != 1000-charged-1 {
			t.Errorf("%s: %d remain, want %d", value, got, 1000-charged-1)
		}
	}
	if strings.Contains(weir.Process().Log(), "panic") {
		t.Error(weir.Process().Log())
	}
}
