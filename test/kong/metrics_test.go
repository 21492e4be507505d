package kong_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/test/kong"
	"github.com/weirhq/weir/test/servers"
)

// Metrics are served if the start command asks for them, in both modes: what became of requests, and what engines in the
// process decided by which rule.
func TestMetrics(t *testing.T) {
	address := servers.Address(servers.FreePort(t))
	node := kong.Start(t, 2, "-metrics", address)
	remote := configure(asks(t, startWeir(t).GRPC(), map[string]any{"limit_by": "ip", "hour": 2}))
	simple := configure(embedded(map[string]any{"limit_by": "ip", "hour": 1}))
	dry := configure(embedded(map[string]any{"limit_by": "ip", "hour": 1, "dry_run": true}))
	skipped := configure(embedded(map[string]any{"limit_by": "consumer", "on_missing": "skip", "hour": 1}))
	faulty := configure(embedded(map[string]any{"limit_by": "shoe_size", "hour": 1}))
	byRules := configure(map[string]any{"mode": "embedded", "rules_path": rulesFile(t), "descriptors": []any{
		map[string]any{"entries": []any{map[string]any{"key": "user", "source": "consumer", "field": "username", "default": "nobody"}}},
	}})
	for range 3 {
		for _, config := range []*kong.Config{remote, simple, dry, skipped, faulty} {
			must(t, node.Workers[0], config, anyone(0))
		}
		must(t, node.Workers[1], byRules, &kong.Request{Consumer: "c", Username: "ann"})
		must(t, node.Workers[1], byRules, &kong.Request{Consumer: "c", Username: "blocked"})
	}
	got := scrape(t, address)
	for series, want := range map[string]float64{
		`weir_kong_requests_total{mode="grpc",result="passed"}`:                                 2,
		`weir_kong_requests_total{mode="grpc",result="limited"}`:                                1,
		`weir_kong_requests_total{mode="embedded",result="passed"}`:                             1 + 1 + 2,
		`weir_kong_requests_total{mode="embedded",result="limited"}`:                            2 + 1 + 3,
		`weir_kong_requests_total{mode="embedded",result="dry_run"}`:                            2,
		`weir_kong_requests_total{mode="embedded",result="skipped"}`:                            3,
		`weir_kong_requests_total{mode="embedded",result="fault"}`:                              3,
		`weir_kong_decision_duration_seconds_count{mode="grpc"}`:                                3,
		`weir_decisions_total{domain="",outcome="allowed",rule="config"}`:                       2,
		`weir_decisions_total{domain="",outcome="denied",rule="config"}`:                        4,
		`weir_decisions_total{domain="kong",outcome="allowed",rule="per-user"}`:                 2,
		`weir_decisions_total{domain="kong",outcome="denied",rule="per-user"}`:                  1,
		`weir_decisions_total{domain="kong",outcome="denied",rule="` + ruleOf("blocked") + `"}`: 3,
		`weir_kong_instances`: 6,
		`weir_kong_engines`:   2, // those without rules share one
		`weir_kong_servers`:   1,
	} {
		if got[series] != want {
			t.Errorf("%s is %v, want %v", series, got[series], want)
		}
	}
	if got["weir_kong_connections"] < 1 {
		t.Errorf("%v connections", got["weir_kong_connections"])
	}
	for series := range got {
		if strings.Contains(series, "192.0.2.1") || strings.Contains(series, "ann") && !strings.Contains(series, "scanned") {
			t.Errorf("%s shows who was limited", series)
		}
	}
}

// ruleOf is the label of a rule of rulesFile's that has no name.
func ruleOf(user string) string { return "user=" + user }

// A reload starts a process while the one before it still has the address: metrics follow.
func TestMetricsSurviveAReload(t *testing.T) {
	address := servers.Address(servers.FreePort(t))
	node := kong.Start(t, 1, "-metrics", address)
	config := configure(embedded(map[string]any{"limit_by": "ip", "hour": 9}))
	must(t, node.Workers[0], config, anyone(0))
	old := node.Spawn()
	old.Stop()
	node.Workers[0].Close()
	must(t, node.Workers[0], config, anyone(0))
	must(t, node.Workers[0], config, anyone(0))
	servers.Eventually(t, "the new process shows its metrics", func() bool {
		return tryScrape(t, address)[`weir_kong_requests_total{mode="embedded",result="passed"}`] == 2
	})
}

func TestFaultyMetricsAddress(t *testing.T) {
	log := runToEnd(t, "-kong-prefix", t.TempDir(), "-metrics", "metrics")
	if !strings.Contains(log, "write host:port") {
		t.Errorf("%s", log)
	}
	// A socket in a folder that is not there is no reason not to limit.
	node := kong.Start(t, 1, "-metrics", filepath.Join(t.TempDir(), "nowhere", "metrics.socket"))
	config := configure(embedded(map[string]any{"limit_by": "ip", "hour": 1}))
	must(t, node.Workers[0], config, anyone(0))
	if response := must(t, node.Workers[0], config, anyone(0)); !response.Denied() {
		t.Error("no limit")
	}
	await(t, func() bool { return strings.Contains(node.Process().Log(), "metrics are not served yet") })
}
