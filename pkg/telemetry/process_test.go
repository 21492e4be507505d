package telemetry

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/failover"
	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestStoreMetrics(t *testing.T) {
	m := newMetrics(t)
	m.StoreTook(300*time.Microsecond, 0, 2)
	m.StoreTook(2*time.Millisecond, 1, 3) // one node of a cluster
	m.StoreTook(100*time.Millisecond, 2, 2)
	expect(t, m, "weir_store_request_duration_seconds_count", `{result="ok"} 2`, `{result="error"} 1`)
	expect(t, m, "weir_store_failed_charges_total", "3")
	if got := scrape(t, m, "weir_store_request_duration_seconds_bucket"); !strings.Contains(strings.Join(got, "\n"), `{result="ok",le="0.0005"} 1`) {
		t.Errorf("got %v", got)
	}
}

func TestBreakerMetrics(t *testing.T) {
	m := newMetrics(t)
	expect(t, m, "weir_store_breaker_state", `{state="closed"} 1`, `{state="half_open"} 0`, `{state="open"} 0`)
	expect(t, m, "weir_store_breaker_transitions_total", `{state="closed"} 0`, `{state="half_open"} 0`, `{state="open"} 0`)
	for _, state := range []failover.State{failover.Open, failover.HalfOpen, failover.Open, failover.HalfOpen} {
		m.BreakerChanged(state.String())
	}
	expect(t, m, "weir_store_breaker_state", `{state="closed"} 0`, `{state="half_open"} 1`, `{state="open"} 0`)
	expect(t, m, "weir_store_breaker_transitions_total", `{state="closed"} 0`, `{state="half_open"} 2`, `{state="open"} 2`)
}

// The states that this package knows are those that the breaker has.
func TestBreakerStates(t *testing.T) {
	var names []string
	for _, state := range failover.States() {
		names = append(names, state.String())
	}
	if strings.Join(names, " ") != strings.Join(breakerStates, " ") {
		t.Errorf("the breaker has %v, the metrics %v", names, breakerStates)
	}
}

func TestRuleMetrics(t *testing.T) {
	m := newMetrics(t)
	m.RulesRefused()
	m.SafeDefault()
	expect(t, m, "weir_rules_last_reload_successful", "0")
	expect(t, m, "weir_rules_safe_default", "1")
	expect(t, m, "weir_rules_last_reload_success_timestamp_seconds", "0")

	before := time.Now().Unix()
	m.RulesLoaded()
	m.RulesInForce([]*ratelimit.Rule{newRule("edge", "a"), newRule("edge", "b")}, "00000000002a77777777")
	expect(t, m, "weir_rules_last_reload_successful", "1")
	expect(t, m, "weir_rules_safe_default", "0")
	expect(t, m, "weir_rules_loaded", "2")
	expect(t, m, "weir_rules_hash", "42")
	m.StoredRules(5, 2)
	expect(t, m, "weir_rules_stored", `{state="merged"} 5`, `{state="overridden"} 2`)
	for _, up := range []bool{true, false} {
		m.RuleStoreUp(up)
		expect(t, m, "weir_rule_store_up", map[bool]string{true: "1", false: "0"}[up])
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "weir_rules_last_reload_success_timestamp_seconds" {
			if got := family.GetMetric()[0].GetGauge().GetValue(); got < float64(before) || got > float64(time.Now().Unix()+1) {
				t.Errorf("the last load was at %v", got)
			}
		}
	}

	m.RulesRefused()
	expect(t, m, "weir_rules_last_reload_successful", "0")
	expect(t, m, "weir_rules_safe_default", "0") // the rules before are in force
	expect(t, m, "weir_rules_reloads_total", `{result="failure"} 2`, `{result="success"} 1`)
}

func TestHashNumber(t *testing.T) {
	if got := hashNumber("ffffffffffff00"); got != 1<<48-1 {
		t.Errorf("got %v", got)
	}
	if a, b := hashNumber("not hexadecimal"), hashNumber("short"); a == b || a != hashNumber("not hexadecimal") || a >= 1<<48 {
		t.Errorf("got %v and %v", a, b)
	}
}

func TestMemoryAndRedisMetrics(t *testing.T) {
	m := newMetrics(t)
	keys := 5
	m.MemoryStore("main", func() MemoryStats { return MemoryStats{Keys: keys, MaxKeys: 1000, Evictions: 7} })
	m.MemoryStore("local", func() MemoryStats { return MemoryStats{MaxKeys: 10} })
	keys = 6 // asked for at each scrape
	expect(t, m, "weir_memory_keys", `{use="local"} 0`, `{use="main"} 6`)
	expect(t, m, "weir_memory_max_keys", `{use="local"} 10`, `{use="main"} 1000`)
	expect(t, m, "weir_memory_evictions_total", `{use="local"} 0`, `{use="main"} 7`)

	calls := 0
	m.RedisPool(func() PoolStats {
		calls++
		return PoolStats{Open: 4, Idle: 3, Hits: 10, Misses: 4, Timeouts: 1, Stale: 2, Waits: 5, WaitingDuration: 1500 * time.Millisecond}
	})
	expect(t, m, "weir_redis_pool_connections", "4")
	if calls != 1 {
		t.Errorf("asked %d times for one scrape", calls)
	}
	expect(t, m, "weir_redis_pool_idle_connections", "3")
	expect(t, m, "weir_redis_pool_hits_total", "10")
	expect(t, m, "weir_redis_pool_misses_total", "4")
	expect(t, m, "weir_redis_pool_timeouts_total", "1")
	expect(t, m, "weir_redis_pool_stale_connections_total", "2")
	expect(t, m, "weir_redis_pool_waits_total", "5")
	expect(t, m, "weir_redis_pool_wait_seconds_total", "1.5")
}

func TestCertificatesAndPanics(t *testing.T) {
	m := newMetrics(t)
	m.CertificateLoaded("server", time.Unix(1_800_000_000, 0))
	m.CertificateLoaded("server", time.Unix(1_900_000_000, 0))
	m.Panicked("store")
	expect(t, m, "weir_tls_certificate_expiry_timestamp_seconds", `{use="server"} 1.9e+09`)
	expect(t, m, "weir_panics_total", `{where="store"} 1`)
}

// A real client over a real connection gets all of it, compressed or not.
func TestHandler(t *testing.T) {
	server := httptest.NewServer(newMetrics(t).Handler())
	defer server.Close()
	defer server.Client().CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if kind := response.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/openmetrics-text") {
		t.Errorf("content type %s", kind)
	}
	for _, want := range []string{"weir_build_info", "go_goroutines", "process_cpu_seconds", "# EOF"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s", want)
		}
	}
}
