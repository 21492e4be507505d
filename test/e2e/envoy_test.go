package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/test/servers"
)

// edgeRules limit what the shipped bootstrap asks for. The windows are so long that no test sees one end.
const edgeRules = `
domain: edge
descriptors:
  - key: remote_address
    name: per-address
    limits: [{algorithm: fixed_window, limit: 5, window: 30d}]
  - key: api_key
    limits: [{algorithm: fixed_window, limit: 1000000, window: 30d}]
`

func TestEnvoyLimitsAcrossListeners(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": edgeRules}})
	envoy, upstream := startEnvoy(t, weir.GRPC())

	for i := range 5 {
		listener := []string{"ingress", "ingress-2"}[i%2]
		got := get(t, envoy.URL(listener)+"/")
		if got.status != http.StatusOK {
			t.Fatalf("request %d was answered %d, want 200", i+1, got.status)
		}
		if want := fmt.Sprint(4 - i); got.header.Get("X-Ratelimit-Remaining") != want {
			t.Errorf("request %d: X-RateLimit-Remaining is %q, want %s", i+1, got.header.Get("X-Ratelimit-Remaining"), want)
		}
	}
	for _, listener := range []string{"ingress", "ingress-2"} {
		got := get(t, envoy.URL(listener)+"/")
		if got.status != http.StatusTooManyRequests {
			t.Fatalf("the sixth request was answered %d on %s, want 429", got.status, listener)
		}
		if !strings.HasPrefix(got.header.Get("X-Ratelimit-Limit"), `5, 5;w=2592000;name="per-address"`) {
			t.Errorf("X-RateLimit-Limit is %q", got.header.Get("X-Ratelimit-Limit"))
		}
		if got.header.Get("X-Ratelimit-Remaining") != "0" || got.header.Get("X-Ratelimit-Reset") == "" || got.header.Get("Retry-After") == "" {
			t.Errorf("headers of a denial: %v", got.header)
		}
	}
	if got := upstream.Requests(); got != 5 {
		t.Errorf("%d requests reached the upstream, want 5", got)
	}
}

func TestEnvoyFailsOpenWithoutWeirAndIsLimitedAgain(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": edgeRules}})
	envoy, _ := startEnvoy(t, weir.GRPC())
	exhaust(t, envoy, 5)

	weir.Process().Kill()
	for i := range 10 {
		if got := get(t, envoy.URL("ingress")+"/"); got.status != http.StatusOK {
			t.Fatalf("without weir request %d was answered %d, want 200", i+1, got.status)
		}
	}

	weir.Restart()
	envoy.AwaitHealthy("ratelimit", 1)
	exhaust(t, envoy, 5) // memory begins anew
}

func TestInvalidBytesAreLimitedToo(t *testing.T) {
	rules := strings.Replace(edgeRules, "limit: 1000000", "limit: 3", 1)
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": rules}})
	envoy, _ := startEnvoy(t, weir.GRPC())
	for i, want := range []int{200, 200, 200, 429, 429} {
		if got := rawGet(t, envoy.Addr("ingress"), "x-api-key: \xff\xfe"); got.status != want {
			t.Errorf("request %d was answered %d, want %d", i+1, got.status, want)
		}
	}
	if failed := envoy.Stat("cluster.echo.ratelimit.error"); failed != 0 {
		t.Errorf("%d calls failed", failed)
	}
}

// A client and the author of rules, who may be different people, put what they can into what weir writes; the client of
// Envoy must get whole header lines that weir and Envoy meant, and no others.
func TestNoHeaderInjection(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"edge.yaml": `
domain: edge
descriptors:
  - key: remote_address
    name: 'a", injected="1" \ é ;x=1,'
    detailed_metric: true
    metadata: {note: "line\r\nX-Injected: 1"}
    limits: [{limit: 1000, window: 1h}]
  - key: api_key
    detailed_metric: true
    limits: [{limit: 2, window: 1h}, {limit: 3, window: 1d, kind: quota}]
`},
		Set: map[string]string{
			"envoy.response_headers": "x-ratelimit,draft-03,ietf", "envoy.problem_json": "true", "envoy.dynamic_metadata": "true",
		},
	})
	envoy, _ := startEnvoy(t, weir.GRPC())
	for _, value := range []string{`x", injected="1"`, "tab\tin it", "\x80\xff", "é\u2028\u0085", strings.Repeat("A", 20000), `\r\nX-Injected: 1`} {
		for range 4 {
			got := rawGet(t, envoy.Addr("ingress"), "x-api-key: "+value)
			if got.status != http.StatusOK && got.status != http.StatusTooManyRequests {
				t.Fatalf("%.40q was answered %d", value, got.status)
			}
			for name, values := range got.header {
				if strings.Contains(strings.ToLower(name), "injected") {
					t.Errorf("%.40q made a header %s", value, name)
				}
				for _, text := range values {
					if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
						t.Errorf("%.40q: header %s holds bytes that it must not: %q", value, name, text)
					}
				}
			}
			if limit := got.header.Get("X-Ratelimit-Limit"); strings.Contains(limit, `injected="1"`) {
				t.Errorf("the rule's name broke out of its quotes: %s", limit)
			}
		}
	}
	weir.WriteRules("edge.yaml", "domain: edge\ndescriptors: [{key: remote_address, name: \"a\\r\\nX-Injected: 1\", limits: [{limit: 1, window: 1h}]}]")
	servers.Eventually(t, "a name with a line break is refused", func() bool {
		return weir.Metric(`weir_rules_last_reload_successful`) == 0
	})
}

func TestReloadUnderLoadThroughEnvoy(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": strings.Replace(edgeRules, "limit: 5,", "limit: 100000000,", 1)}})
	envoy, _ := startEnvoy(t, weir.GRPC())
	stop, failed, denied := httpLoad(t, envoy.URL("ingress")+"/")

	start := time.Now()
	weir.WriteRules("edge.yaml", edgeRules)
	servers.Eventually(t, "the new limit denies", func() bool { return denied.Load() > 0 })
	visible := time.Since(start)
	weir.WriteRules("edge.yaml", "domain: edge\ndescriptors: [{key")
	servers.Eventually(t, "the half-written file is refused", func() bool { return weir.Metric("weir_rules_last_reload_successful") == 0 })
	stop()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d requests failed", n)
	}
	figure(t, "a changed rule is enforced through Envoy after %v", visible.Round(time.Millisecond))
	if visible > 5*time.Second { // a second is promised; the rest is for a busy machine
		t.Errorf("the new limit was visible after %v", visible)
	}
}

func TestRollingRestartFailsNoCall(t *testing.T) {
	redis := servers.Redis(t)
	options := servers.WeirOptions{
		Rules: map[string]string{"edge.yaml": strings.Replace(edgeRules, "limit: 5,", "limit: 100000000,", 1)},
		Set: map[string]string{
			"redis.url": "redis://" + redis.Addr(), "server.drain_delay": "3s", "redis.timeout_ms": "1000",
			"server.grpc.max_connection_age": "2s", "server.grpc.max_connection_age_grace": "5s",
		},
	}
	first, second := servers.Weir(t, options), servers.Weir(t, options)
	envoy, _ := startEnvoy(t, first.GRPC(), second.GRPC())
	envoy.AwaitHealthy("ratelimit", 2)
	stop, failed, _ := httpLoad(t, envoy.URL("ingress")+"/")

	for _, weir := range []*servers.WeirServer{first, second} {
		before := envoy.Stat("cluster.echo.ratelimit.ok")
		weir.Process().Signal(syscall.SIGTERM)
		if err := weir.Process().Err(); err != nil {
			t.Errorf("weir ended with %v; its output:\n%s", err, weir.Process().Log())
		}
		weir.Restart()
		envoy.AwaitHealthy("ratelimit", 2)
		if envoy.Stat("cluster.echo.ratelimit.ok") == before {
			t.Error("no call was made meanwhile")
		}
	}
	stop()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d requests failed", n)
	}
	calls := envoy.Stat("cluster.echo.ratelimit.ok")
	if n := envoy.Stat("cluster.echo.ratelimit.error"); n != 0 {
		t.Errorf("%d of %d calls to weir failed", n, calls)
	}
	figure(t, "two replicas restarted in turn under load: %d calls, %d failed", calls, envoy.Stat("cluster.echo.ratelimit.error"))
}

func startEnvoy(t *testing.T, weirs ...string) (*servers.EnvoyServer, *servers.UpstreamServer) {
	t.Helper()
	upstream := servers.Upstream(t)
	envoy := servers.Envoy(t, servers.EnvoyOptions{
		Clusters: map[string][]string{"ratelimit": weirs, "echo": {upstream.Addr()}},
		// The shipped timeout is for machines that do not run all tests at once, and nobody reads the access log.
		Edit: func(bootstrap map[string]any) {
			edit(bootstrap, func(node map[string]any) {
				if _, ok := node["failure_mode_deny"]; ok {
					node["timeout"] = "2s"
				}
				delete(node, "access_log")
			})
		},
	})
	envoy.AwaitHealthy("ratelimit", len(weirs))
	return envoy, upstream
}

// edit changes every mapping of a decoded YAML document.
func edit(node any, change func(map[string]any)) {
	switch node := node.(type) {
	case map[string]any:
		change(node)
		for _, child := range node {
			edit(child, change)
		}
	case []any:
		for _, child := range node {
			edit(child, change)
		}
	}
}

// exhaust sends limit requests that pass, and one that does not.
func exhaust(t *testing.T, envoy *servers.EnvoyServer, limit int) {
	t.Helper()
	for i := range limit {
		if got := get(t, envoy.URL("ingress")+"/"); got.status != http.StatusOK {
			t.Fatalf("request %d of %d was answered %d, want 200", i+1, limit, got.status)
		}
	}
	if got := get(t, envoy.URL("ingress")+"/"); got.status != http.StatusTooManyRequests {
		t.Fatalf("the request above the limit was answered %d, want 429", got.status)
	}
}

// httpLoad sends requests without a pause until stop. Answers other than 200 and 429 have failed.
func httpLoad(t *testing.T, url string) (stop func(), failed, denied *atomic.Int64) {
	failed, denied = new(atomic.Int64), new(atomic.Int64)
	var (
		group sync.WaitGroup
		ended atomic.Bool
	)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	t.Cleanup(client.CloseIdleConnections)
	for range 8 {
		group.Go(func() {
			for !ended.Load() {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
				if err != nil {
					t.Error(err)
					return
				}
				response, err := client.Do(request)
				if err != nil {
					failed.Add(1)
					t.Logf("a request failed: %v", err)
					continue
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				switch response.StatusCode {
				case http.StatusOK:
				case http.StatusTooManyRequests:
					denied.Add(1)
				default:
					failed.Add(1)
				}
			}
		})
	}
	stop = func() {
		ended.Store(true)
		group.Wait()
	}
	t.Cleanup(stop)
	return stop, failed, denied
}

// rawGet sends a request whose header line is as it is, which net/http would not send.
func rawGet(t testing.TB, address, header string) answer {
	t.Helper()
	dialer := net.Dialer{Timeout: servers.StartTimeout}
	connection, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(servers.StartTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(connection, "GET / HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n%s\r\n\r\n", header); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatalf("header %.60q: %v", header, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}
