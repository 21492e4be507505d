package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/kongplugin/internal/access"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandled(t *testing.T) {
	m := New("v1")
	m.Handled("grpc", access.Limited, 3*time.Millisecond)
	m.Handled("grpc", access.Limited, time.Second)
	m.Handled("embedded", access.Broken, 0)
	m.Handled("no such mode", access.Passed, 0)
	want := `
# HELP weir_kong_requests_total Requests that Kong asked about, by what became of them: passed, limited, dry_run, skipped, fault, broken.
# TYPE weir_kong_requests_total counter
weir_kong_requests_total{mode="embedded",result="broken"} 1
weir_kong_requests_total{mode="embedded",result="dry_run"} 0
weir_kong_requests_total{mode="embedded",result="fault"} 0
weir_kong_requests_total{mode="embedded",result="limited"} 0
weir_kong_requests_total{mode="embedded",result="passed"} 0
weir_kong_requests_total{mode="embedded",result="skipped"} 0
weir_kong_requests_total{mode="grpc",result="broken"} 0
weir_kong_requests_total{mode="grpc",result="dry_run"} 0
weir_kong_requests_total{mode="grpc",result="fault"} 0
weir_kong_requests_total{mode="grpc",result="limited"} 2
weir_kong_requests_total{mode="grpc",result="passed"} 0
weir_kong_requests_total{mode="grpc",result="skipped"} 0
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), "weir_kong_requests_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(m.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// However many rules come and go, the series are bounded, and every decision is in one of them.
func TestDecisionsAreBounded(t *testing.T) {
	m := New("v1")
	var tasks sync.WaitGroup
	const times = 4
	for range times {
		tasks.Go(func() {
			for i := range 2 * maxRules {
				rule := &ratelimit.Rule{Domain: "d\xff", Name: fmt.Sprintf("rule-%d", i)}
				m.Decided("d", nil, &engine.Status{Rule: rule, Outcome: ratelimit.OutcomeAllowed})
			}
			m.Decided("d", nil, &engine.Status{Override: true, Outcome: ratelimit.OutcomeDenied})
			m.Decided("d", nil, &engine.Status{})
			m.UnknownDomain("e", 1)
			m.Answered(nil)
		})
	}
	tasks.Wait()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	rules, sum := make(map[string]float64), 0.0
	for _, family := range families {
		if family.GetName() != "weir_decisions_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "rule" {
					rules[label.GetValue()] += metric.GetCounter().GetValue()
				}
			}
			sum += metric.GetCounter().GetValue()
		}
	}
	if sum != times*(2*maxRules+3) || len(rules) > maxRules+4 {
		t.Errorf("%v decisions of %d rules", sum, len(rules))
	}
	if rules["rule-0"] != times || rules["other"] < times*maxRules-times*4 {
		t.Errorf("rule-0 %v, other %v", rules["rule-0"], rules["other"])
	}
}

// The address may be taken for a while: by the process before this one.
func TestServeOnceTheAddressIsFree(t *testing.T) {
	m := New("v1")
	m.Gauge("engines", "Engines.", func() int { return 7 })
	ctx, cancel := context.WithCancel(t.Context())
	var address string
	ready := make(chan struct{})
	tries := 0
	listen := func(ctx context.Context) (net.Listener, error) {
		if tries++; tries == 1 {
			return nil, errors.New("taken")
		}
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err == nil {
			address = listener.Addr().String()
			close(ready)
		}
		return listener, err
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { m.Serve(ctx, listen, slog.New(slog.DiscardHandler)) })
	<-ready
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(text), "weir_kong_engines 7\n") || !strings.Contains(string(text), "go_goroutines ") {
		t.Errorf("%s (%v)", text, err)
	}
	cancel()
	tasks.Wait()
}

func TestServeEndsThoughTheAddressStaysTaken(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	New("v1").Serve(ctx, func(context.Context) (net.Listener, error) {
		cancel()
		return nil, errors.New("taken")
	}, slog.New(slog.DiscardHandler))
}
