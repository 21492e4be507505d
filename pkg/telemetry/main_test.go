package telemetry

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMetrics(t testing.TB) *Metrics {
	t.Helper()
	return NewMetrics(MetricsOptions{MaxValues: 3, MaxRules: 10, Version: "1.2.3", Revision: "abc", GoVersion: "go1.26"})
}

// scrape returns the samples of one metric as a client reads them, sorted.
func scrape(t testing.TB, m *Metrics, name string) []string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if recorder.Code != http.StatusOK {
		t.Fatalf("status %d: %s", recorder.Code, recorder.Body)
	}
	text, err := io.ReadAll(recorder.Body)
	if err != nil {
		t.Fatal(err)
	}
	var samples []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			samples = append(samples, strings.TrimSpace(strings.TrimPrefix(line, name)))
		}
	}
	sort.Strings(samples)
	return samples
}

func expect(t testing.TB, m *Metrics, name string, want ...string) {
	t.Helper()
	sort.Strings(want)
	if got := scrape(t, m, name); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func newRule(domain, name string) *ratelimit.Rule {
	return &ratelimit.Rule{
		Domain: domain, Name: name, Path: "user",
		Match: []ratelimit.EntryMatch{{Key: "user", Kind: ratelimit.MatchAny}},
	}
}

func entries(pairs ...string) []ratelimit.Entry {
	var list []ratelimit.Entry
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, ratelimit.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return list
}

// Names, units and help texts follow Prometheus' conventions.
func TestLint(t *testing.T) {
	m := newMetrics(t)
	m.Decided(newRule("edge", "per-user"), entries("user", "ann"), ratelimit.OutcomeAllowed, 1)
	m.Panicked("test")
	m.MemoryStore("main", func() MemoryStats { return MemoryStats{} })
	m.RedisPool(func() PoolStats { return PoolStats{} })
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, namespace) {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}

func TestBuildInfo(t *testing.T) {
	expect(t, newMetrics(t), "weir_build_info", `{goversion="go1.26",revision="abc",version="1.2.3"} 1`)
}
