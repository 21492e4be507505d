package xds

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/ruleset"
	"github.com/weirhq/weir/pkg/telemetry"
)

const (
	manyDomains    = 5000
	rulesPerDomain = 20
)

// domainOf is a domain with the rules of as many routes.
func domainOf(number int, count uint32) *configpb.RateLimitConfig {
	name := fmt.Sprintf("namespace-%d/gateway-%d/http", number%50, number)
	config := &configpb.RateLimitConfig{Name: name, Domain: name}
	for i := range rulesPerDomain {
		route := fmt.Sprintf("httproute/namespace-%d/route-%d/rule/0/match/0/*", number%50, i)
		config.Descriptors = append(config.Descriptors, &configpb.RateLimitDescriptor{Key: route, Value: route, Descriptors: []*configpb.RateLimitDescriptor{{
			Key: "rule-0-match-0", RateLimit: &configpb.RateLimitPolicy{Unit: configpb.RateLimitUnit_HOUR, RequestsPerUnit: count},
		}}})
	}
	return config
}

func responseOf(tb testing.TB) *discovery.DiscoveryResponse {
	tb.Helper()
	response := &discovery.DiscoveryResponse{TypeUrl: TypeURL, VersionInfo: "0", Nonce: "0"}
	for i := range manyDomains {
		resource, err := anypb.New(domainOf(i, 1_000_000_000))
		if err != nil {
			tb.Fatal(err)
		}
		response.Resources = append(response.Resources, resource)
	}
	return response
}

// inForce is a whole set of rules with a limiter, as a server has it.
func inForce(tb testing.TB, client *Client) (*engine.Limiter, *atomic.Int64) {
	tb.Helper()
	store := memstore.New(memstore.Options{})
	tb.Cleanup(store.Close)
	metrics := telemetry.NewMetrics(telemetry.MetricsOptions{})
	limiter := engine.New(store, engine.Options{Recorder: counted{metrics}})
	var installed atomic.Int64
	set, err := ruleset.New(ruleset.Options{
		Default:  ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 1, Window: time.Second},
		Install:  func(table *rules.Table) { limiter.SetTable(table); installed.Add(1) },
		Observer: metrics,
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	set.Add(asSource{client}, "rules of the control plane")
	set.Load(tb.Context())
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		set.Run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
	})
	return limiter, &installed
}

type asSource struct{ *Client }

func (asSource) Name() string                                  { return "xds" }
func (asSource) Load(context.Context, *ruleset.Slot)           {}
func (s asSource) Run(ctx context.Context, slot *ruleset.Slot) { s.Client.Run(ctx, slot) }

// counted is the recorder that counts decisions for the metrics.
type counted struct{ metrics *telemetry.Metrics }

func (c counted) Decided(_ string, entries []ratelimit.Entry, status *engine.Status) {
	c.metrics.Decided(status.Rule, entries, status.Outcome, status.Cost)
}
func (c counted) UnknownDomain(string, int) { c.metrics.UnknownDomain() }
func (counted) Answered(*engine.Decision)   {}

// limitOf is what applies to the first rule of a domain, 0 if nothing does.
func limitOf(limiter *engine.Limiter, number int) int64 {
	config := domainOf(number, 1)
	first := config.Descriptors[0].GetKey()
	rule := limiter.Table().Match(config.GetDomain(), []ratelimit.Entry{{Key: first, Value: first}, {Key: "rule-0-match-0", Value: "ann"}}).Rule
	if rule == nil {
		return 0
	}
	return rule.Limits[0].Count
}

// BenchmarkOneChangedDomain is the time from a response of 5,000 domains with 20 rules each, one of which has changed, until it is in
// force, over a real connection; and how much slower requests are while changes come one after the other.
func BenchmarkOneChangedDomain(b *testing.B) {
	response := responseOf(b)
	size := 0
	for _, each := range response.Resources {
		size += len(each.GetValue())
	}
	send := make(chan *discovery.DiscoveryResponse)
	address := newHostile(b, func(stream adsStream, _ int) error {
		for {
			select {
			case next := <-send:
				if err := stream.Send(next); err != nil {
					return err
				}
				if answer, err := stream.Recv(); err != nil || answer.GetErrorDetail() != nil {
					return fmt.Errorf("%v %w", answer, err)
				}
			case <-stream.Context().Done():
				return nil
			}
		}
	})
	client := New(Options{Server: address, NodeID: node, Logger: slog.New(slog.DiscardHandler)})
	limiter, installed := inForce(b, client)
	began := time.Now()
	send <- response
	eventually(b, "the first rules", func() bool { return installed.Load() == 2 })
	b.Logf("figure: xds first set of %d domains x %d rules (%.1f MB) in force after %v", manyDomains, rulesPerDomain, float64(size)/1e6, time.Since(began).Round(time.Millisecond))

	version := 0
	change := func() time.Duration {
		version++
		number := version * 7919 % manyDomains
		resource, err := anypb.New(domainOf(number, uint32(1_000_000_000+version)))
		if err != nil {
			b.Fatal(err)
		}
		next := &discovery.DiscoveryResponse{TypeUrl: TypeURL, VersionInfo: fmt.Sprint(version), Nonce: fmt.Sprint(version), Resources: slices.Clone(response.Resources)}
		next.Resources[number] = resource
		response = next
		began := time.Now()
		send <- next
		for limitOf(limiter, number) != int64(1_000_000_000+version) {
			time.Sleep(100 * time.Microsecond)
		}
		return time.Since(began)
	}
	var changes []time.Duration
	for b.Loop() {
		changes = append(changes, change())
	}
	slices.Sort(changes)
	b.ReportMetric(float64(changes[len(changes)/2].Microseconds())/1e3, "ms-p50/change")
	b.Logf("figure: xds one changed domain of %d in force after p50 %v, max %v (%d changes)", manyDomains,
		changes[len(changes)/2].Round(100*time.Microsecond), changes[len(changes)-1].Round(100*time.Microsecond), len(changes))
	if len(changes) < 5 {
		return // only the real run goes on to the requests
	}

	var quiet, busy []time.Duration
	var failed atomic.Int64
	for range 5 { // interleaved, so that whatever else the machine does meets both
		quiet = append(quiet, p999(requests(limiter, &failed, func() {})))
		busy = append(busy, p999(requests(limiter, &failed, func() { change() })))
	}
	slices.Sort(quiet)
	slices.Sort(busy)
	b.Logf("figure: xds requests while a change comes every 200 ms: p99.9 %v, without %v (medians of 5), failed %d", busy[2], quiet[2], failed.Load())
}

// requests decides requests at an even pace for two seconds, does something every 200 ms meanwhile, and returns how long each
// took.
func requests(limiter *engine.Limiter, failed *atomic.Int64, meanwhile func()) []time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(200 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				meanwhile()
			case <-ctx.Done():
				return
			}
		}
	}()
	var all []ratelimit.Request
	for i := range 1000 { // of many domains, each of which is the first of its table at some time
		config := domainOf(i, 1)
		first := config.Descriptors[i%rulesPerDomain].GetKey()
		all = append(all, ratelimit.Request{Domain: config.GetDomain(), Cost: 1, Descriptors: []ratelimit.Descriptor{
			{Entries: []ratelimit.Entry{{Key: first, Value: first}, {Key: "rule-0-match-0", Value: "ann"}}},
		}})
	}
	batch := &engine.Batch{}
	var took []time.Duration
	for i := 0; ctx.Err() == nil; i++ {
		batch.Requests = append(batch.Requests[:0], all[i%len(all)])
		began := time.Now()
		limiter.Decide(ctx, batch)
		took = append(took, time.Since(began))
		if d := &batch.Decisions[0]; d.Err != nil || d.Over || d.UnknownDomain {
			failed.Add(1)
		}
		time.Sleep(50 * time.Microsecond)
	}
	<-done
	return took
}

func p999(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*999/1000]
}
