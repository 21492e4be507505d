package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirhq/weir/test/servers"
)

const countedRules = "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 2}}]\n"

// scrape reads metrics as Prometheus does.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	answered := get(t, url)
	if answered.status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", url, answered.status, answered.body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(answered.body))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// Metrics have a listener of their own, with the names of envoyproxy/ratelimit beside weir's.
func TestMetricsListener(t *testing.T) {
	mapper := filepath.Join(t.TempDir(), "mapper.yaml")
	if err := os.WriteFile(mapper, []byte("mappings: [{match: ratelimit.service.rate_limit.*.*.total_hits, name: hits, timer_type: histogram, labels: {domain: $1, key: $2}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ mapper, metric, label string }{
		"default mapping": {"", "ratelimit_service_rate_limit_total_hits", "key1"},
		"given mapping":   {mapper, "hits", "key"},
		"missing mapping": {mapper + ".missing", "ratelimit_service_rate_limit_total_hits", "key1"},
	} {
		t.Run(name, func(t *testing.T) {
			address := servers.Address(servers.FreePort(t))
			weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"rules.yaml": countedRules}, Set: map[string]string{
				"metrics.address": address, "metrics.path": "/own", "metrics.envoyproxy_names": "true", "metrics.mapper_file": c.mapper,
			}})
			fast, err := grpc.NewClient(weir.Fast(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = fast.Close() })
			for _, client := range []rlsv3.RateLimitServiceClient{rlsv3.NewRateLimitServiceClient(fast), clientOf(weir)} {
				ask(t, client, request("edge", "user=ann"))
				if _, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge"}); err == nil {
					t.Error("a request without descriptors was answered")
				}
			}
			for _, url := range []string{"http://" + address + "/own", weir.HTTP() + "/metrics"} {
				families := scrape(t, url)
				if families["weir_decisions_total"] == nil {
					t.Errorf("%s has none of weir's metrics", url)
				}
				hits := families[c.metric].GetMetric()
				if len(hits) != 1 || hits[0].GetCounter().GetValue() != 2 || hits[0].GetLabel()[1].GetName() != c.label || hits[0].GetLabel()[1].GetValue() != "user" {
					t.Fatalf("%s: %s is %v, want 2", url, c.metric, hits)
				}
				if c.metric == "hits" {
					continue
				}
				if calls := families["ratelimit_service_total_requests"].GetMetric(); calls[0].GetCounter().GetValue() != 4 {
					t.Errorf("%s: %v calls, want 4", url, calls)
				}
				if took := families["ratelimit_service_response_time_seconds"].GetMetric(); took[0].GetHistogram().GetSampleCount() != 4 {
					t.Errorf("%s: the times of %v calls, want 4", url, took)
				}
				for _, failures := range families["ratelimit_service_should_rate_limit_error"].GetMetric() {
					want := map[string]float64{"service_error": 2, "redis_error": 0}[failures.GetLabel()[0].GetValue()]
					if failures.GetCounter().GetValue() != want {
						t.Errorf("%s: %v, want %v", url, failures, want)
					}
				}
			}
			if other := get(t, "http://"+address+"/metrics"); other.status != http.StatusNotFound {
				t.Errorf("GET /metrics: %d, want 404", other.status)
			}
		})
	}
}

func TestBadMapperFile(t *testing.T) {
	mapper := filepath.Join(t.TempDir(), "mapper.yaml")
	if err := os.WriteFile(mapper, []byte("mappings: [{match: a, surprise: 1}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	output := runServe(t, "--set", "metrics.envoyproxy_names=true", "--set", "metrics.mapper_file="+mapper)
	if !strings.Contains(output, "metrics.mapper_file: "+mapper) {
		t.Errorf("it says %q, want the setting and the file", output)
	}
}

// What was counted since the last flush is sent at the end.
func TestStatisticsAtTheEnd(t *testing.T) {
	statistics := listenStatsd(t)
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"rules.yaml": countedRules}, Set: map[string]string{
		"statsd.address": "tcp://" + statistics.address, "statsd.flush_interval": "1h", "statsd.tags": "zone:a",
	}})
	for i := range 5 {
		ask(t, clientOf(weir), request("edge", "user="+strconv.Itoa(i)))
	}
	weir.Process().Stop()
	const name = "ratelimit.service.rate_limit.edge.user.within_limit.__zone=a"
	servers.Eventually(t, "5 hits", func() bool {
		statistics.mu.Lock()
		defer statistics.mu.Unlock()
		return statistics.counters[name] == 5
	})
}
