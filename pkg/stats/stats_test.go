package stats_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

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
	store := memstore.New(memstore.Options{})
	t.Cleanup(store.Close)
	c := &counting{Stats: stats.New(options), t: t}
	c.limiter = engine.New(store, engine.Options{Recorder: c.Stats})
	c.load(text)
	return c
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
	c.limiter.Check(context.Background(), ratelimit.Request{
		Domain: domain, Cost: cost, Descriptors: []ratelimit.Descriptor{{Entries: entries}},
	}, false)
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
