package dropin

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirhq/weir/test/servers"
)

const one = `{"domain": "edge", "descriptors": [{"entries": [{"key": "generic_key", "value": "%s"}]}]}`

// An environment such as envoyproxy/ratelimit's own examples have: files below a link that is swapped, one Redis, the ports.
func TestEnvironmentOfExamples(t *testing.T) {
	redis := servers.Redis(t)
	current := filepath.Join(t.TempDir(), "current")
	if err := os.Symlink(runtime(t, rulesText("edge", 2)), current); err != nil {
		t.Fatal(err)
	}
	s := start(t, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr(), "RUNTIME_ROOT="+current, "RUNTIME_SUBDIRECTORY=ratelimit",
		"USE_STATSD=false", "LOG_LEVEL=debug", "CACHE_KEY_PREFIX=pre:", "REDIS_PIPELINE_WINDOW=150us", "LIMIT_RESPONSE_HEADERS_ENABLED=true",
		"LIMIT_LIMIT_HEADER=X-Max", "WEIR_SERVER_DRAIN_DELAY=10s")
	if status, body := s.get(s.web, "/healthcheck"); status != http.StatusOK || body != "OK" {
		t.Fatalf("/healthcheck is %d %q", status, body)
	}

	// /json and gRPC draw from one counter, which stands where envoyproxy/ratelimit keeps it.
	if status, body := s.json(strings.ReplaceAll(one, "%s", "a")); status != http.StatusOK || !strings.Contains(body, `"limitRemaining":1`) && !strings.Contains(body, `"limitRemaining": 1`) {
		t.Errorf("/json is %d %s", status, body)
	}
	connection := dial(t, s.grpc)
	reply, err := ask(t, connection, "edge", "generic_key=a")
	if err != nil || reply.GetOverallCode() != rlsv3.RateLimitResponse_OK {
		t.Fatalf("%v, %v", reply, err)
	}
	headers := map[string]string{}
	for _, header := range reply.GetResponseHeadersToAdd() {
		headers[header.GetKey()] = header.GetValue()
	}
	if headers["x-max"] != "2" || headers["ratelimit-remaining"] != "0" || headers["ratelimit-reset"] == "" || len(headers) != 3 {
		t.Errorf("the headers are %v", headers)
	}
	if status, body := s.json(strings.ReplaceAll(one, "%s", "a")); status != http.StatusTooManyRequests || !strings.Contains(body, "OVER_LIMIT") {
		t.Errorf("/json over the limit is %d %s", status, body)
	}
	keys, _ := redis.Do("keys", "pre:edge_generic_key_a_*").([]any)
	if len(keys) != 1 {
		t.Errorf("the keys in Redis are %v", redis.Do("keys", "*"))
	}

	// The debug port.
	if status, body := s.get(s.debug, "/rlconfig"); status != http.StatusOK || body != "edge.generic_key: unit=HOUR requests_per_unit=2, shadow_mode: false, quota_mode: false\n" {
		t.Errorf("/rlconfig is %d %s", status, body)
	}
	if status, body := s.get(s.debug, "/stats"); status != http.StatusOK || !strings.Contains(body, "ratelimit.service.rate_limit.edge.generic_key.total_hits: 3\n") {
		t.Errorf("/stats is %d %s", status, body)
	}
	for path, want := range map[string]string{"/": "/rlconfig: ", "/debug/pprof/": "goroutine", "/debug/pprof/cmdline": "ratelimit"} {
		if status, body := s.get(s.debug, path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s is %d %s", path, status, body)
		}
	}
	if status, _ := s.get(s.debug, "/nothing"); status != http.StatusNotFound {
		t.Errorf("/nothing is %d", status)
	}

	// A variable without a counterpart is answered once.
	if told := strings.Count(s.process.Log(), "variable=REDIS_PIPELINE_WINDOW"); told != 1 {
		t.Errorf("REDIS_PIPELINE_WINDOW is told of %d times", told)
	}

	// The link is swapped: the new rules count.
	swap(t, current, runtime(t, rulesText("edge", 5)))
	servers.Eventually(t, "the rules behind the swapped link count", func() bool {
		_, body := s.get(s.debug, "/rlconfig")
		return strings.Contains(body, "requests_per_unit=5,")
	})

	// The drain: health says so, calls are still answered.
	for _, service := range []string{"", "ratelimit"} {
		if status := health(t, connection, service); status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q is %v", service, status)
		}
	}
	s.process.Signal(syscall.SIGTERM)
	servers.Eventually(t, "health follows SIGTERM", func() bool {
		status, _ := s.get(s.web, "/healthcheck")
		return status == http.StatusInternalServerError && health(t, connection, "ratelimit") == healthpb.HealthCheckResponse_NOT_SERVING
	})
	if !allowed(t, connection, "edge", "generic_key=b") {
		t.Error("a call during the drain is denied")
	}
	s.process.Signal(syscall.SIGTERM) // which hurries it
	select {
	case <-s.process.Done():
	case <-time.After(servers.StartTimeout):
		t.Error("it did not end")
	}
}

func TestJSON(t *testing.T) {
	s := start(t, "RUNTIME_ROOT="+runtime(t, rulesText("edge", 3)), "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false")
	for _, c := range []struct {
		what, body string
		want       int
		text       string
	}{
		{"a request", strings.ReplaceAll(one, "%s", "a"), http.StatusOK, "OK"},
		{"names as in the proto file", `{"domain": "edge", "hits_addend": 9, "descriptors": [{"entries": [{"key": "generic_key", "value": "b"}]}]}`, http.StatusTooManyRequests, "OVER_LIMIT"},
		{"an unknown domain", `{"domain": "nobody", "descriptors": [{"entries": [{"key": "k"}]}]}`, http.StatusOK, "OK"},
		{"no JSON", `domain: edge`, http.StatusBadRequest, "no RateLimitRequest"},
		{"nothing", ``, http.StatusBadRequest, "no RateLimitRequest"},
		{"no domain", `{"descriptors": [{"entries": [{"key": "k"}]}]}`, http.StatusBadRequest, "domain"},
		{"no descriptors", `{"domain": "edge"}`, http.StatusBadRequest, "descriptor"},
		{"an unknown field", `{"domain": "edge", "descriptor": []}`, http.StatusBadRequest, "descriptor"},
		{"another type", `{"domain": 7}`, http.StatusBadRequest, "no RateLimitRequest"},
		{"a huge body", `{"domain": "` + strings.Repeat("x", 2<<20) + `"}`, http.StatusBadRequest, "too large"},
	} {
		if status, body := s.json(c.body); status != c.want || !strings.Contains(body, c.text) {
			t.Errorf("%s: %d %.200s, want %d with %q", c.what, status, body, c.want, c.text)
		}
	}
	if status, _ := s.get(s.web, "/json"); status != http.StatusMethodNotAllowed {
		t.Errorf("GET /json is %d", status)
	}
	// Without server.envoyproxy_endpoints there is no such path.
	plain := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": rulesText("edge", 3)}})
	for _, path := range []string{"/json", "/healthcheck"} {
		if status, _ := plain.Get(path); status != http.StatusNotFound {
			t.Errorf("%s of weir serve is %d", path, status)
		}
	}
}

// With REDIS_HEALTH_CHECK_ACTIVE_CONNECTION health follows Redis; without it requests pass and health is good.
func TestHealthFollowsRedis(t *testing.T) {
	redis := servers.Redis(t)
	common := []string{"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(), "RUNTIME_ROOT=" + runtime(t, rulesText("edge", 1)), "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false"}
	plain := start(t, common...)
	strict := start(t, append(common, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")...)
	connection := dial(t, strict.grpc)
	good := func(s *ratelimit) bool { status, _ := s.get(s.web, "/healthcheck"); return status == http.StatusOK }
	servers.Eventually(t, "both are healthy", func() bool { return good(plain) && good(strict) })

	redis.Kill()
	servers.Eventually(t, "health follows Redis down", func() bool {
		return !good(strict) && health(t, connection, "ratelimit") == healthpb.HealthCheckResponse_NOT_SERVING &&
			health(t, connection, "") == healthpb.HealthCheckResponse_NOT_SERVING
	})
	if !good(plain) {
		t.Error("health is bad although nobody has asked it to follow Redis")
	}
	for range 3 { // beyond the limit of 1: open within the deadline
		began := time.Now()
		if !allowed(t, dial(t, plain.grpc), "edge", "generic_key=x") {
			t.Error("a request is denied while Redis is away")
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("an answer took %v", took)
		}
	}
	redis.Restart()
	servers.Eventually(t, "health follows Redis up", func() bool {
		return good(strict) && health(t, connection, "ratelimit") == healthpb.HealthCheckResponse_SERVING
	})
}

// Without rules requests pass; HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED makes health wait for some.
func TestNoRulesYet(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	common := []string{"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false"}
	plain, waits := start(t, common...), start(t, append(common, "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true")...)
	connection := dial(t, plain.grpc)
	for range 200 { // more than weir's default limit
		if !allowed(t, connection, "edge", "generic_key=x") {
			t.Fatal("a request is denied without any rules")
		}
	}
	if status, _ := plain.get(plain.web, "/healthcheck"); status != http.StatusOK {
		t.Errorf("health without rules is %d", status)
	}
	if status, _ := waits.get(waits.web, "/healthcheck"); status != http.StatusInternalServerError {
		t.Errorf("health without rules is %d where it is to wait for them", status)
	}
	writeRules(t, folder, rulesText("edge", 1))
	servers.Eventually(t, "rules make it healthy", func() bool {
		status, _ := waits.get(waits.web, "/healthcheck")
		return status == http.StatusOK && health(t, dial(t, waits.grpc), "ratelimit") == healthpb.HealthCheckResponse_SERVING
	})
	servers.Eventually(t, "the rules count", func() bool { return !allowed(t, connection, "edge", "generic_key=y") })
}

func TestSocket(t *testing.T) {
	folder, err := os.MkdirTemp("", "uds") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "ratelimit.sock")
	s := start(t, "GRPC_UDS="+path, "RUNTIME_ROOT="+runtime(t, rulesText("edge", 1)), "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false")
	connection := dial(t, "unix://"+path)
	if !allowed(t, connection, "edge", "generic_key=a") || allowed(t, connection, "edge", "generic_key=a") {
		t.Error("the limit of 1 does not hold")
	}
	if health(t, dial(t, s.grpc), "") != healthpb.HealthCheckResponse_UNKNOWN {
		t.Error("the port is open beside the socket")
	}
}

// TLS and a user with a password to Redis; a certificate's name may be passed over, its authority not.
func TestRedisTLS(t *testing.T) {
	redis := servers.Redis(t, servers.WithTLS(), servers.WithUser("ann", "sesame", "~* +@all"))
	root := runtime(t, rulesText("edge", 1))
	ready := regexp.MustCompile(`"name":"redis","ready":true`)
	connects := func(variables ...string) bool {
		s := start(t, append(variables, "REDIS_SOCKET_TYPE=tcp", "REDIS_TLS=true", "REDIS_AUTH=ann:sesame",
			"RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false")...)
		for range 5 {
			if _, body := s.get(s.web, "/readyz"); ready.MatchString(body) {
				return true
			}
		}
		if strings.Contains(s.process.Log(), "sesame") {
			t.Error("the log has the password")
		}
		return false
	}
	if !connects("REDIS_URL="+redis.Addr(), "REDIS_TLS_CACERT="+redis.CAFile()) {
		t.Error("no connection with the right authority")
	}
	if connects("REDIS_URL=" + redis.Addr()) {
		t.Error("a connection with the system's authorities")
	}
	other := servers.NewAuthority(t, t.TempDir())
	if connects("REDIS_URL="+redis.Addr(), "REDIS_TLS_CACERT="+other.CAFile, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true") {
		t.Error("a connection with another authority, because the name is not checked")
	}
}
