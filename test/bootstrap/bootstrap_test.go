// Package bootstrap tests, in a real Envoy, that the shipped bootstrap asks for limits as its comments say. What weir
// answers is not tested here: a service that writes down what it is asked stands for it.
package bootstrap

import (
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirhq/weir/test/servers"
)

func TestEnvoyAcceptsTheFileAsItIs(t *testing.T) {
	if err := servers.ValidateEnvoy(t, filepath.Join(servers.Root(t), "envoy", "bootstrap.yaml")); err != nil {
		t.Fatal(err)
	}
}

func TestDescriptors(t *testing.T) {
	limiter, upstream := startRecorder(t), servers.Upstream(t)
	envoy := start(t, limiter, upstream)
	const address, edge = "remote_address=127.0.0.1", "generic_key=edge,method="

	tests := []struct {
		name   string
		method string // GET if empty
		path   string
		header http.Header
		want   string
	}{
		{name: "any path", path: "/", want: "edge: " + edge + "GET; " + address},
		{name: "any method", method: http.MethodDelete, path: "/x", want: "edge: " + edge + "DELETE; " + address},
		{
			name: "a key", path: "/", header: http.Header{"X-Api-Key": {"one", "two"}},
			want: "edge: api_key=one; " + edge + "GET; " + address,
		},
		{
			name: "an address that the client made up", path: "/", header: http.Header{"X-Forwarded-For": {"192.0.2.1"}},
			want: "edge: " + edge + "GET; " + address,
		},
		{
			name: "a token", path: "/", header: http.Header{"Authorization": {"Bearer " + servers.AliceToken}},
			want: "edge: " + edge + "GET; jwt_sub=alice; " + address,
		},
		{
			name: "a template", path: "/v1/users/7/orders/9",
			want: "edge: path_template=/v1/users/{user}/orders/{order},method=GET," + address,
		},
		{
			name: "a template in another spelling", path: "/v1//users/./7/%6frders/9?x=y",
			want: "edge: path_template=/v1/users/{user}/orders/{order},method=GET," + address,
		},
		{
			name: "a template and a token", path: "/v1/users/7/orders/9", header: http.Header{"Authorization": {"Bearer " + servers.BobToken}},
			want: "edge: jwt_sub=bob; path_template=/v1/users/{user}/orders/{order},method=GET," + address,
		},
		{name: "a template with a slash at its end", path: "/v1/users/7/orders/9/", want: "edge: " + edge + "GET; " + address},
		{
			name: "a cost", path: "/v1/reports", header: http.Header{"X-Cost": {"5"}},
			want: "edge: report=bytes," + address + "*0; report=requests," + address + "; report=units," + address + "*5",
		},
		{
			name: "a cost that cannot be read", path: "/v1/reports/x", header: http.Header{"X-Cost": {"-5"}},
			want: "edge: report=bytes," + address + "*0; report=requests," + address,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			limiter.take()
			if response := get(t, envoy.URL("ingress"), test.method, test.path, test.header); response.status != http.StatusOK {
				t.Fatalf("answered %d", response.status)
			}
			if calls := limiter.take(); !slices.Contains(calls, test.want) {
				t.Errorf("asked\n  %s\nwant\n  %s", strings.Join(calls, "\n  "), test.want)
			}
		})
	}
}

func TestCostAfterTheResponse(t *testing.T) {
	limiter, upstream := startRecorder(t), servers.Upstream(t)
	envoy := start(t, limiter, upstream)
	get(t, envoy.URL("ingress"), http.MethodGet, "/v1/reports?bytes=12345", nil)
	const want = "edge: report=bytes,remote_address=127.0.0.1*12345"
	var calls []string
	servers.Eventually(t, "envoy charges the response's size", func() bool {
		calls = append(calls, limiter.take()...)
		return slices.Contains(calls, want)
	})
}

func TestBothListenersAskTheSame(t *testing.T) {
	limiter, upstream := startRecorder(t), servers.Upstream(t)
	envoy := start(t, limiter, upstream)
	for _, listener := range []string{"ingress", "ingress-2"} {
		get(t, envoy.URL(listener), http.MethodGet, "/", nil)
	}
	if calls := limiter.take(); len(calls) != 2 || calls[0] != calls[1] {
		t.Errorf("two listeners asked %q, want the same twice", calls)
	}
}

func TestDenial(t *testing.T) {
	limiter, upstream := startRecorder(t), servers.Upstream(t)
	envoy := start(t, limiter, upstream)
	limiter.set(true, 0)
	response := get(t, envoy.URL("ingress"), http.MethodGet, "/", nil)
	if response.status != http.StatusTooManyRequests {
		t.Errorf("answered %d, want 429", response.status)
	}
	for name, want := range map[string]string{
		"X-Ratelimit-Limit":     `10, 10;w=60;name="demo", 10;w=60;name="demo"`,
		"X-Ratelimit-Remaining": "0",
		"X-Ratelimit-Reset":     "7",
		"Retry-After":           "7",
	} {
		if got := response.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if upstream.Requests() != 0 {
		t.Error("the denied request reached the upstream")
	}
}

func TestInvalidTokenIsNotAsked(t *testing.T) {
	limiter, upstream := startRecorder(t), servers.Upstream(t)
	envoy := start(t, limiter, upstream)
	forged := servers.AliceToken[:len(servers.AliceToken)-8] + "AAAAAAAA"
	response := get(t, envoy.URL("ingress"), http.MethodGet, "/", http.Header{"Authorization": {"Bearer " + forged}})
	if response.status != http.StatusUnauthorized {
		t.Errorf("answered %d, want 401", response.status)
	}
	if calls := limiter.take(); len(calls) != 0 {
		t.Errorf("asked %q", calls)
	}
}

func TestFailsOpen(t *testing.T) {
	limiter, upstream := startRecorder(t), servers.Upstream(t)
	envoy := start(t, limiter, upstream)
	limiter.set(true, time.Minute) // longer than the filter waits
	if response := get(t, envoy.URL("ingress"), http.MethodGet, "/", nil); response.status != http.StatusOK {
		t.Errorf("with a limiter that does not answer: %d, want 200", response.status)
	}
	if allowed := envoy.Stat("cluster.echo.ratelimit.failure_mode_allowed"); allowed != 1 {
		t.Errorf("%d requests passed because the limiter failed, want 1", allowed)
	}
}

func TestDrainingReplicaIsLeftAlone(t *testing.T) {
	leaving, staying, upstream := startRecorder(t), startRecorder(t), servers.Upstream(t)
	envoy := servers.Envoy(t, servers.EnvoyOptions{Clusters: map[string][]string{
		"ratelimit": {leaving.addr, staying.addr}, "echo": {upstream.Addr()},
	}})
	envoy.AwaitHealthy("ratelimit", 2)
	leaving.health.SetServingStatus(rls.RateLimitService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	envoy.AwaitHealthy("ratelimit", 1)
	// Envoy's workers learn it a moment after the gauge shows it.
	servers.Eventually(t, "the replica that is NOT_SERVING is not asked", func() bool {
		leaving.take()
		staying.take()
		for range 10 {
			get(t, envoy.URL("ingress"), http.MethodGet, "/", nil)
		}
		return len(leaving.take()) == 0 && len(staying.take()) == 10
	})
	leaving.health.SetServingStatus(rls.RateLimitService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	envoy.AwaitHealthy("ratelimit", 2)
}

func start(t *testing.T, limiter *recorder, upstream *servers.UpstreamServer) *servers.EnvoyServer {
	t.Helper()
	envoy := servers.Envoy(t, servers.EnvoyOptions{Clusters: map[string][]string{
		"ratelimit": {limiter.addr}, "echo": {upstream.Addr()},
	}})
	envoy.AwaitHealthy("ratelimit", 1)
	return envoy
}

// answer is what a client was told.
type answer struct {
	status int
	header http.Header
}

func get(t *testing.T, base, method, path string, header http.Header) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header}
}
