package stats_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/denycache"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/stats"
)

// counting is a limiter of rules in memory, whose decisions are counted.
type counting struct {
	*stats.Stats
	limiter *engine.Limiter
	t       testing.TB
}

func count(t testing.TB, options stats.Options, text string) *counting {
	t.Helper()
	c := &counting{Stats: stats.New(options), t: t}
	c.limiter = c.newLimiter(engine.Options{Recorder: c.Stats})
	c.load(text)
	return c
}

func (c *counting) newLimiter(options engine.Options) *engine.Limiter {
	store := memstore.New(memstore.Options{})
	c.t.Cleanup(store.Close)
	return engine.New(store, options)
}

// load puts rules in force.
func (c *counting) load(text string) {
	c.t.Helper()
	source, problems := rules.Parse("rules.yaml", []byte(text))
	if len(problems) > 0 {
		c.t.Fatal(problems)
	}
	table, err := rules.Compile(rules.Options{}, source)
	if err != nil {
		c.t.Fatal(err)
	}
	c.limiter.SetTable(table)
	c.RulesInForce(table.Rules())
}

// hit asks for a cost by a descriptor such as "plan=free,user=ann".
func (c *counting) hit(domain, descriptor string, cost int64) {
	c.t.Helper()
	var entries []ratelimit.Entry
	for part := range strings.SplitSeq(descriptor, ",") {
		key, value, _ := strings.Cut(part, "=")
		entries = append(entries, ratelimit.Entry{Key: key, Value: value})
	}
	c.decide(ratelimit.Request{Domain: domain, Cost: cost, Descriptors: []ratelimit.Descriptor{{Entries: entries}}})
}

func (c *counting) decide(request ratelimit.Request) {
	c.limiter.Check(context.Background(), request, false)
}

// lines returns the counters that are not 0, without the beginning that those of rules have in common.
func (c *counting) lines() string {
	var b strings.Builder
	c.Each(func(name string, value uint64) {
		if value > 0 {
			fmt.Fprintf(&b, "%s %d\n", strings.TrimPrefix(name, "ratelimit.service.rate_limit."), value)
		}
	})
	return b.String()
}

func (c *counting) expect(want string) {
	c.t.Helper()
	want = strings.ReplaceAll(strings.TrimLeft(want, "\n"), "\t", "")
	if got := c.lines(); got != want {
		c.t.Errorf("counted\n%s\nwant\n%s", got, want)
	}
}

func TestCounters(t *testing.T) {
	c := count(t, stats.Options{}, `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 10}
`)
	c.expect("")
	for _, step := range []struct {
		cost int64
		want string
	}{
		{7, "edge.user.total_hits 7\nedge.user.within_limit 7\n"},
		// The 8th hit is at the ratio of 0.8, the 9th above it.
		{2, "edge.user.near_limit 1\nedge.user.total_hits 9\nedge.user.within_limit 9\n"},
		{0, "edge.user.near_limit 1\nedge.user.total_hits 9\nedge.user.within_limit 9\n"},
		{-1, "edge.user.near_limit 1\nedge.user.total_hits 9\nedge.user.within_limit 9\n"}, // 8 are used now
		// Two of the five fit, both near the limit; three are over it.
		{5, "edge.user.near_limit 3\nedge.user.over_limit 3\nedge.user.total_hits 14\nedge.user.within_limit 9\n"},
		{4, "edge.user.near_limit 3\nedge.user.over_limit 7\nedge.user.total_hits 18\nedge.user.within_limit 9\n"},
	} {
		c.hit("edge", "user=ann", step.cost)
		c.expect(step.want)
	}
}

func TestNames(t *testing.T) {
	c := count(t, stats.Options{MaxValues: 10}, `
domain: a.b:c
default: {limits: [{limit: 5, window: 1d}]}
descriptors:
  - {key: plan, value: free, rate_limit: {unit: day, requests_per_unit: 5}}
  - key: client
    descriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 5}}]
  - {key: shown, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: detailed, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: star, value: "s*", rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: starshown, value: "s*", value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: shared, value: "s*", share_threshold: true, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: shareddetail, value: "s*", share_threshold: true, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: "any*", rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: net, match: {cidr: 10.0.0.0/8}, limits: [{limit: 5, window: 1d}]}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: blocked, action: deny}
`)
	for _, descriptor := range []string{
		"plan=free", "client=x,path=/a", "shown=10.2.3.4", "shown=", "detailed=", "detailed=a:b|c", "star=sun", "starshown=sun", "shared=sun",
		"shareddetail=sun", "anybody=me", "net=10.1.1.1", "nothing=1", "free=1", "blocked=1", "shown=x\ny",
	} {
		c.hit("a.b:c", descriptor, 1)
	}
	c.hit("who", "user=1", 1)
	c.expect(`
	a.b_c.anybody_any*.total_hits 1
	a.b_c.anybody_any*.within_limit 1
	a.b_c.blocked.over_limit 1
	a.b_c.blocked.total_hits 1
	a.b_c.client.path.total_hits 1
	a.b_c.client.path.within_limit 1
	a.b_c.default.total_hits 1
	a.b_c.default.within_limit 1
	a.b_c.detailed_.total_hits 1
	a.b_c.detailed_.within_limit 1
	a.b_c.detailed_a_b_c.total_hits 1
	a.b_c.detailed_a_b_c.within_limit 1
	a.b_c.net_10_0_0_0/8.total_hits 1
	a.b_c.net_10_0_0_0/8.within_limit 1
	a.b_c.plan_free.total_hits 1
	a.b_c.plan_free.within_limit 1
	a.b_c.shared_s*.total_hits 1
	a.b_c.shared_s*.within_limit 1
	a.b_c.shareddetail_s*.total_hits 1
	a.b_c.shareddetail_s*.within_limit 1
	a.b_c.shown.total_hits 1
	a.b_c.shown.within_limit 1
	a.b_c.shown_10_2_3_4.total_hits 1
	a.b_c.shown_10_2_3_4.within_limit 1
	a.b_c.shown_x_y.total_hits 1
	a.b_c.shown_x_y.within_limit 1
	a.b_c.star_s*.total_hits 1
	a.b_c.star_s*.within_limit 1
	a.b_c.starshown_sun.total_hits 1
	a.b_c.starshown_sun.within_limit 1
	who.domain_not_found 1
	`)
}

// Each lists the rules in force with zeros before they are used, and the service's counters always.
func TestEach(t *testing.T) {
	c := count(t, stats.Options{}, one)
	var names []string
	c.Each(func(name string, value uint64) {
		if value != 0 {
			t.Errorf("%s is %d", name, value)
		}
		names = append(names, name)
	})
	want := []string{
		"ratelimit.service.call.should_rate_limit.redis_error",
		"ratelimit.service.call.should_rate_limit.service_error",
		"ratelimit.service.config_load_error",
		"ratelimit.service.config_load_success",
		"ratelimit.service.global_shadow_mode",
		"ratelimit.service.rate_limit.edge.user.near_limit",
		"ratelimit.service.rate_limit.edge.user.over_limit",
		"ratelimit.service.rate_limit.edge.user.over_limit_with_local_cache",
		"ratelimit.service.rate_limit.edge.user.shadow_mode",
		"ratelimit.service.rate_limit.edge.user.total_hits",
		"ratelimit.service.rate_limit.edge.user.within_limit",
		"ratelimit_server.ShouldRateLimit.total_requests",
	}
	if strings.Join(names, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestShadow(t *testing.T) {
	c := count(t, stats.Options{}, `
domain: edge
descriptors:
  - {key: user, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
`)
	c.hit("edge", "user=ann", 5)
	c.hit("edge", "user=ann", 1)
	c.expect(`
	edge.user.near_limit 1
	edge.user.over_limit 3
	edge.user.shadow_mode 3
	edge.user.total_hits 6
	`)
}

// What a whole server in shadow mode lets pass is counted by the request; its rules are over all the same.
func TestGlobalShadow(t *testing.T) {
	c := count(t, stats.Options{}, one)
	c.limiter = c.newLimiter(engine.Options{ShadowMode: true, Recorder: c.Stats})
	c.load(one)
	for range 3 {
		c.hit("edge", "user=ann", 6)
	}
	c.expect(`
	ratelimit.service.global_shadow_mode 2
	edge.user.near_limit 2
	edge.user.over_limit 8
	edge.user.total_hits 18
	edge.user.within_limit 6
	`)
}

// What the deny cache denies is over the limit, and marked.
func TestDenyCache(t *testing.T) {
	c := count(t, stats.Options{}, one)
	behind := memstore.New(memstore.Options{})
	t.Cleanup(behind.Close)
	cache := denycache.New(behind, denycache.Options{})
	cache.Listening(true)
	c.limiter = engine.New(cache, engine.Options{Recorder: c.Stats})
	c.load(one)
	for range 4 {
		c.hit("edge", "user=ann", 10)
	}
	c.expect(`
	edge.user.near_limit 2
	edge.user.over_limit 30
	edge.user.over_limit_with_local_cache 20
	edge.user.total_hits 40
	edge.user.within_limit 10
	`)
}

// away is a store that cannot decide.
type away struct{}

func (away) Take(_ context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		charges[i].Err = errors.New("away")
	}
}

func (away) Reset(context.Context, []string) error { return nil }

// A request that no store could decide is an error of Redis, once, and its hits are neither within the limit nor over it.
func TestStoreAway(t *testing.T) {
	c := count(t, stats.Options{}, one)
	c.limiter = engine.New(away{}, engine.Options{Recorder: c.Stats})
	c.load(one)
	descriptor := ratelimit.Descriptor{Entries: []ratelimit.Entry{{Key: "user", Value: "ann"}}}
	c.decide(ratelimit.Request{Domain: "edge", Cost: 2, Descriptors: []ratelimit.Descriptor{descriptor, descriptor}})
	c.expect(`
	ratelimit.service.call.should_rate_limit.redis_error 1
	edge.user.total_hits 4
	`)
}

// A limit that the caller sends is counted by all its values, as far as there may be names.
func TestOverrides(t *testing.T) {
	c := count(t, stats.Options{MaxValues: 2}, one)
	for i := range 4 {
		c.decide(ratelimit.Request{Domain: "edge", Cost: 1, Descriptors: []ratelimit.Descriptor{{
			Entries: []ratelimit.Entry{{Key: "any", Value: strconv.Itoa(i)}, {Key: "thing"}},
			Limit:   &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: 5, Window: 24 * time.Hour},
		}}})
	}
	c.expect(`
	edge.any_0.thing.total_hits 1
	edge.any_0.thing.within_limit 1
	edge.any_1.thing.total_hits 1
	edge.any_1.thing.within_limit 1
	edge.other.total_hits 2
	edge.other.within_limit 2
	`)
}

// What is beyond a bound is counted all the same.
func TestBounds(t *testing.T) {
	c := count(t, stats.Options{MaxRules: 1, MaxValues: 2}, `
domain: edge
descriptors:
  - {key: user, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: path, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 3}}
`)
	for i := range 4 {
		c.hit("edge", "user="+strconv.Itoa(i), 1)
		c.hit("edge", "path="+strconv.Itoa(i), 1)
		c.hit("domain"+strconv.Itoa(i), "user=1", 1)
	}
	c.expect(`
	domain0.domain_not_found 1
	domain1.domain_not_found 1
	edge.user.total_hits 2
	edge.user.within_limit 2
	edge.user_0.total_hits 1
	edge.user_0.within_limit 1
	edge.user_1.total_hits 1
	edge.user_1.within_limit 1
	other.domain_not_found 2
	other.total_hits 4
	other.within_limit 4
	`)
}

// Counters survive new rules; those of rules that are gone are dropped.
func TestNewRules(t *testing.T) {
	c := count(t, stats.Options{}, nested)
	c.hit("edge", "user=ann", 1)
	c.hit("edge", "plan=free,user=ann", 1)
	c.load(one)
	c.hit("edge", "user=ann", 1)
	c.expect("edge.user.total_hits 2\nedge.user.within_limit 2\n")
}

// A rule for whose name there was no room gets one once others are gone, and the same rules keep theirs.
func TestRoomForRules(t *testing.T) {
	c := count(t, stats.Options{MaxRules: 1}, `
domain: edge
descriptors:
  - {key: first, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: second, rate_limit: {unit: day, requests_per_unit: 3}}
`)
	both := c.limiter.Table().Rules()
	c.hit("edge", "first=a", 1)
	c.hit("edge", "second=a", 1)
	c.RulesInForce(both)
	c.hit("edge", "first=a", 1)
	c.expect(`
	edge.first.total_hits 2
	edge.first.within_limit 2
	other.total_hits 1
	other.within_limit 1
	`)
	c.RulesInForce(both[1:])
	c.hit("edge", "second=a", 1)
	c.expect(`
	edge.second.total_hits 1
	edge.second.within_limit 1
	other.total_hits 1
	other.within_limit 1
	`)
}

// Statistics that are read while decisions are made and rules change are never more than was asked, and complete at the end.
func TestConcurrent(t *testing.T) {
	c := count(t, stats.Options{MaxValues: 3}, `
domain: edge
descriptors: [{key: user, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 1000000}}]
`)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 500 {
				c.hit("edge", "user="+strconv.Itoa(i%5), 1)
				c.UnknownDomain("domain"+strconv.Itoa(i%5), 1)
				c.Called(false, time.Millisecond)
			}
		})
	}
	for range 20 {
		c.RulesInForce(c.limiter.Table().Rules())
		c.Each(func(string, uint64) {})
	}
	callers.Wait()
	hits, unknown := uint64(0), uint64(0)
	c.Each(func(name string, value uint64) {
		switch {
		case strings.HasSuffix(name, ".total_hits"):
			hits += value
		case strings.HasSuffix(name, ".domain_not_found"):
			unknown += value
		}
	})
	if hits != 2000 || unknown != 2000 {
		t.Errorf("%d hits and %d unknown domains were counted, want 2000 of each", hits, unknown)
	}
}

func TestNoAllocation(t *testing.T) {
	c := count(t, stats.Options{MaxValues: 10}, `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: shown, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 10}}
`)
	for _, key := range []string{"user", "shown"} {
		entries := []ratelimit.Entry{{Key: key, Value: "ann"}}
		status := engine.Status{
			Rule: c.limiter.Table().Match("edge", entries).Rule, Cost: 1, Granted: 1, Outcome: ratelimit.OutcomeAllowed,
		}
		status.Limit = &status.Rule.Limits[0]
		if allocations := testing.AllocsPerRun(100, func() { c.Decided("edge", entries, &status) }); allocations > 0 {
			t.Errorf("%s: %v allocations for a decision", key, allocations)
		}
	}
}

func BenchmarkDecided(b *testing.B) {
	for name, text := range map[string]string{
		"rule":  "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 10}}]",
		"value": "domain: edge\ndescriptors: [{key: user, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 10}}]",
	} {
		b.Run(name, func(b *testing.B) {
			c := count(b, stats.Options{MaxValues: 10}, text)
			entries := []ratelimit.Entry{{Key: "user", Value: "ann"}}
			status := engine.Status{
				Rule: c.limiter.Table().Match("edge", entries).Rule, Cost: 1, Granted: 1, Outcome: ratelimit.OutcomeAllowed,
			}
			status.Limit = &status.Rule.Limits[0]
			b.ReportAllocs()
			for b.Loop() {
				c.Decided("edge", entries, &status)
			}
		})
	}
}
