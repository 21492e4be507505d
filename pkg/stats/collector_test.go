package stats_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weirhq/weir/pkg/stats"
)

// scrape returns what Prometheus sees, one line for each sample, sorted.
func scrape(t *testing.T, c *counting, mapping *stats.Mapping) []string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.Collector(mapping))
	recorded := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorded, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if recorded.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", recorded.Code, recorded.Body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(recorded.Body)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(families)) {
		for _, metric := range families[name].GetMetric() {
			lines = append(lines, name+labels(metric)+" "+value(metric))
		}
	}
	slices.Sort(lines)
	return lines
}

func labels(metric *dto.Metric) string {
	var list []string
	for _, label := range metric.GetLabel() {
		list = append(list, label.GetName()+"="+label.GetValue())
	}
	return "{" + strings.Join(list, ",") + "}"
}

func value(metric *dto.Metric) string {
	switch {
	case metric.Histogram != nil:
		return fmt.Sprintf("histogram of %d, %d, %g", len(metric.GetHistogram().GetBucket()), metric.GetHistogram().GetSampleCount(), metric.GetHistogram().GetSampleSum())
	case metric.Summary != nil:
		return fmt.Sprintf("summary of %d, %d, %g", len(metric.GetSummary().GetQuantile()), metric.GetSummary().GetSampleCount(), metric.GetSummary().GetSampleSum())
	default:
		return fmt.Sprint(metric.GetCounter().GetValue())
	}
}

const nested = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 10}}
  - key: plan
    value: free
    descriptors:
      - key: user
        rate_limit: {unit: day, requests_per_unit: 1}
        descriptors:
          - {key: path, value: /a, rate_limit: {unit: day, requests_per_unit: 1}}
`

// use makes the same statistics in every test.
func (c *counting) use() {
	c.RulesLoaded()
	c.hit("edge", "user=ann", 3)
	c.hit("edge", "plan=free,user=ann", 2)
	c.hit("edge", "plan=free,user=ann,path=/a", 1)
	c.UnknownDomain("who", 1)
}

func TestDefaultMapping(t *testing.T) {
	c := count(t, stats.Options{MaxValues: 10}, nested)
	c.use()
	c.Called(false, 20*time.Millisecond)
	c.Called(true, 20*time.Millisecond)
	want := []string{
		"ratelimit_service_config_load_error{} 0",
		"ratelimit_service_config_load_success{} 1",
		"ratelimit_service_rate_limit_near_limit{domain=edge,key1=plan_free,key2=user} 2",
		"ratelimit_service_rate_limit_near_limit{domain=edge,key1=user} 0",
		"ratelimit_service_rate_limit_over_limit{domain=edge,key1=plan_free,key2=user} 1",
		"ratelimit_service_rate_limit_over_limit{domain=edge,key1=user} 0",
		"ratelimit_service_rate_limit_shadow_mode{domain=edge,key1=plan_free,key2=user} 0",
		"ratelimit_service_rate_limit_shadow_mode{domain=edge,key1=user} 0",
		"ratelimit_service_rate_limit_total_hits{domain=edge,key1=plan_free,key2=user} 3",
		"ratelimit_service_rate_limit_total_hits{domain=edge,key1=user} 3",
		"ratelimit_service_rate_limit_who_domain_not_found{} 1",
		"ratelimit_service_rate_limit_within_limit{domain=edge,key1=plan_free,key2=user} 1",
		"ratelimit_service_rate_limit_within_limit{domain=edge,key1=user} 3",
		"ratelimit_service_response_time_seconds{grpc_method=ShouldRateLimit} histogram of 17, 0, 0",
		"ratelimit_service_should_rate_limit_error{err_type=redis_error} 0",
		"ratelimit_service_should_rate_limit_error{err_type=service_error} 1",
		"ratelimit_service_total_requests{grpc_method=ShouldRateLimit} 2",
	}
	if got := scrape(t, c, stats.DefaultMapping()); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDurations(t *testing.T) {
	for name, c := range map[string]struct{ mapping, want string }{
		"default": {"", "ratelimit_service_response_time_seconds{grpc_method=ShouldRateLimit} histogram of 17, 1, 0.02"},
		"buckets of the old form": {
			"mappings: [{match: ratelimit_server.*.response_time, name: took, timer_type: histogram, buckets: [1, 2], labels: {grpc_method: $1}}]",
			"took{grpc_method=ShouldRateLimit} histogram of 3, 1, 0.02",
		},
		"summary in milliseconds": {
			"mappings: [{match: ratelimit_server.*.response_time, name: took, timer_type: summary, scale: 1000, quantiles: [{quantile: 0.5, error: 0.1}], match_metric_type: timer}]",
			"took{} summary of 1, 1, 20",
		},
		"unmapped": {"mappings: []", "ratelimit_server_ShouldRateLimit_response_time{} summary of 3, 1, 0.02"},
		"dropped":  {"mappings: [{match: ratelimit_server.*.response_time, name: dropped, action: drop}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			mapping := stats.DefaultMapping()
			if c.mapping != "" {
				var err error
				if mapping, err = stats.ParseMapping([]byte(c.mapping)); err != nil {
					t.Fatal(err)
				}
			}
			counted := count(t, stats.Options{}, one)
			registry := prometheus.NewRegistry()
			registry.MustRegister(counted.Collector(mapping))
			counted.Called(false, 20*time.Millisecond)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, family := range families {
				if metric := family.GetMetric()[0]; metric.Counter == nil {
					got += family.GetName() + labels(metric) + " " + withInfinity(metric)
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// withInfinity is value of a metric that was gathered, whose last bucket is not written out.
func withInfinity(metric *dto.Metric) string {
	if h := metric.GetHistogram(); h != nil {
		return fmt.Sprintf("histogram of %d, %d, %g", len(h.GetBucket())+1, h.GetSampleCount(), h.GetSampleSum())
	}
	return value(metric)
}

// A file in the words that the reference's users have: globs first, then regular expressions.
func TestGivenMapping(t *testing.T) {
	mapping, err := stats.ParseMapping([]byte(`
mappings:
  - match: "ratelimit.service.rate_limit.*.*.total_hits"
    name: "hits"
    timer_type: "histogram"
    labels: {domain: "$1", key1: "$2"}
  - match: "ratelimit\\.service\\.rate_limit\\.([^\\.]*)\\.([^\\.]*)\\.([^\\.]*)(\\..*)?\\.total_hits"
    match_type: regex
    name: "hits"
    labels: {domain: "$1", key1: "$2", key2: "$3"}
  - {match: "ratelimit\\..*", match_type: regex, name: dropped, action: drop}
  - {match: "ratelimit_server.*.total_requests", name: calls, match_metric_type: counter, help: Calls., labels: {grpc_method: $1}}
  - {match: "ratelimit_server.*.response_time", name: dropped, action: drop}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := count(t, stats.Options{}, nested)
	c.use()
	c.Called(false, time.Millisecond)
	want := []string{
		"calls{grpc_method=ShouldRateLimit} 1",
		"hits{domain=edge,key1=plan_free,key2=user} 3",
		"hits{domain=edge,key1=user} 3",
	}
	if got := scrape(t, c, mapping); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBadMappings(t *testing.T) {
	for _, text := range []string{"mappings: [{}]", "mappings: 1", ":\n- ", "mappings: [{match: a, name: b, surprise: 1}]", "mappings: [{match: '(', match_type: regex, name: b}]"} {
		if _, err := stats.ParseMapping([]byte(text)); !errors.Is(err, stats.ErrMapping) {
			t.Errorf("ParseMapping(%q) = %v, want an ErrMapping", text, err)
		}
	}
}
