package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

func fixed(count int64, window time.Duration) ratelimit.Limit {
	return ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: count, Window: window}
}

func perMinute(count int64) []ratelimit.Limit { return []ratelimit.Limit{fixed(count, time.Minute)} }

// edge compiles one domain of rules.
func edge(t testing.TB, definitions ...rules.Definition) *rules.Table {
	t.Helper()
	table, err := rules.Compile(rules.Options{}, &rules.Source{Name: "test", Domains: []rules.Domain{{Name: "edge", Descriptors: definitions}}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// entry returns a descriptor of keys and values.
func entry(pairs ...string) ratelimit.Descriptor {
	var d ratelimit.Descriptor
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, ratelimit.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func costing(cost int64, d ratelimit.Descriptor) ratelimit.Descriptor {
	d.Cost, d.HasCost = cost, true
	return d
}

func asking(descriptors ...ratelimit.Descriptor) ratelimit.Request {
	return ratelimit.Request{Domain: "edge", Descriptors: descriptors, Cost: 1}
}

type harness struct {
	*engine.Limiter
	store    *ledger
	recorder *recorder
	t        testing.TB
}

func start(t testing.TB, options engine.Options, definitions ...rules.Definition) *harness {
	t.Helper()
	h := &harness{store: &ledger{}, recorder: &recorder{}, t: t}
	options.Recorder = h.recorder
	h.Limiter = engine.New(h.store, options)
	h.SetTable(edge(t, definitions...))
	return h
}

func (h *harness) decide(request ratelimit.Request) engine.Decision {
	h.t.Helper()
	d := h.Check(h.t.Context(), request, false)
	if d.Err != nil {
		h.t.Fatal(d.Err)
	}
	return d
}

// recorder remembers what it was told, one line for each descriptor.
type recorder struct {
	mu                          sync.Mutex
	lines                       []string
	unknown, answered, shadowed int
}

func (r *recorder) Decided(_ string, _ []ratelimit.Entry, status *engine.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	label := "-"
	if status.Rule != nil {
		label = status.Rule.Label()
	}
	r.lines = append(r.lines, fmt.Sprintf("%s %s %d", label, status.Outcome, status.Cost))
}

func (r *recorder) UnknownDomain(string, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unknown++
}

func (r *recorder) Answered(decision *engine.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered++
	if decision.Shadowed {
		r.shadowed++
	}
}

// brief shows a decision in one line: the overall answer, then each status as outcome/over/granted/remaining.
func brief(d engine.Decision) string {
	var b strings.Builder
	b.WriteString("pass")
	if d.Over {
		b.Reset()
		b.WriteString("over")
	}
	for _, s := range d.Statuses {
		over := ""
		if s.Over {
			over = "!"
		}
		if s.Limit == nil {
			fmt.Fprintf(&b, " %s%s", s.Outcome, over)
			continue
		}
		fmt.Fprintf(&b, " %s%s:%d+%d/%d", s.Outcome, over, s.Granted, s.Remaining, s.Limit.Count)
	}
	return b.String()
}

func expect(t testing.TB, what string, d engine.Decision, want string) {
	t.Helper()
	if got := brief(d); got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestDecide(t *testing.T) {
	h := start(
		t, engine.Options{},
		rules.Definition{Key: "user", Name: "per-user", Limits: perMinute(2)},
		rules.Definition{Key: "plan", Value: "free", Descriptors: []rules.Definition{{Key: "user", Limits: perMinute(1)}}},
	)
	alice := asking(entry("user", "alice"))
	expect(t, "first", h.decide(alice), "pass allowed:1+1/2")
	expect(t, "second", h.decide(alice), "pass allowed:1+0/2")
	third := h.decide(alice)
	expect(t, "third", third, "over denied!:0+0/2")
	if s := third.Statuses[0]; s.Rule.Name != "per-user" || s.RetryAfter != time.Second || s.ResetAfter != time.Minute {
		t.Errorf("the denial says rule %v, retry %v, reset %v", s.Rule, s.RetryAfter, s.ResetAfter)
	}
	expect(t, "another value", h.decide(asking(entry("user", "bob"))), "pass allowed:1+1/2")
	expect(t, "several", h.decide(asking(entry("nothing", "x"), entry("user", "alice"), entry("plan", "free", "user", "alice"), entry("plan", "free"))),
		"over none denied!:0+0/2 allowed:1+0/1 none")
	if h.store.takes != 5 {
		t.Errorf("the store was asked %d times for 5 requests", h.store.takes)
	}
	want := []string{"ratelimit:edge:plan=free|user=alice:60", "ratelimit:edge:user=alice:60", "ratelimit:edge:user=bob:60"}
	if got := h.store.keys(); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	lines := []string{
		"per-user allowed 1", "per-user allowed 1", "per-user denied 1", "per-user allowed 1",
		"- none 1", "per-user denied 1", "plan=free|user allowed 1", "- none 1",
	}
	if !slices.Equal(h.recorder.lines, lines) {
		t.Errorf("the recorder was told %q, want %q", h.recorder.lines, lines)
	}
}

func TestNothingToAsk(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(1)})
	for _, c := range []struct {
		request ratelimit.Request
		want    error
	}{
		{ratelimit.Request{Descriptors: []ratelimit.Descriptor{entry("user", "a")}}, engine.ErrNoDomain},
		{ratelimit.Request{Domain: "edge"}, engine.ErrNoDescriptors},
	} {
		if d := h.Check(t.Context(), c.request, false); !errors.Is(d.Err, c.want) || d.Over {
			t.Errorf("%+v: error %v, want %v", c.request, d.Err, c.want)
		}
	}
	d := h.decide(ratelimit.Request{Domain: "other", Cost: 1, Descriptors: []ratelimit.Descriptor{entry("user", "a"), entry("user", "b")}})
	expect(t, "unknown domain", d, "pass none none")
	if !d.UnknownDomain || h.recorder.unknown != 1 || len(h.recorder.lines) != 0 {
		t.Errorf("unknown domain: %v, counted %d times, recorded %q", d.UnknownDomain, h.recorder.unknown, h.recorder.lines)
	}
	if h.store.takes != 0 {
		t.Error("the store was asked though there was nothing to count")
	}
	expect(t, "a descriptor without entries", h.decide(asking(entry())), "pass none")
	expect(t, "before the first table", engine.New(&ledger{}, engine.Options{}).Check(t.Context(), asking(entry("user", "a")), false), "pass none")
}

func TestCosts(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(10)})
	request := func(cost int64, descriptors ...ratelimit.Descriptor) ratelimit.Request {
		r := asking(descriptors...)
		r.Cost = cost
		return r
	}
	a := entry("user", "a")
	expect(t, "the request's cost", h.decide(request(3, a)), "pass allowed:3+7/10")
	expect(t, "the descriptor's own", h.decide(request(3, costing(2, a))), "pass allowed:2+5/10")
	expect(t, "a look", h.decide(request(3, costing(0, a))), "pass allowed:0+5/10")
	expect(t, "giving back", h.decide(request(3, costing(-1, a))), "pass allowed:-1+6/10")
	expect(t, "never above the limit", h.decide(request(-100, a)), "pass allowed:-4+10/10")
	expect(t, "a cost that finds less takes what is left", h.decide(request(25, a)), "over denied!:10+0/10")
	expect(t, "a look at nothing", h.decide(request(0, a)), "over denied!:0+0/10")
	expect(t, "giving back is always allowed", h.decide(request(-1, a)), "pass allowed:-1+1/10")
	for _, cost := range []int64{1 << 62, -1 << 63} {
		h.decide(request(cost, a))
	}
	asked := h.store.asked[len(h.store.asked)-2:]
	if got := []int64{asked[0].Hits[0].Cost, asked[1].Hits[0].Cost}; !slices.Equal(got, []int64{ratelimit.MaxCost, -ratelimit.MaxCost}) {
		t.Errorf("costs beyond the bounds reach the store as %d", got)
	}
}

func TestPeekChargesNothing(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(1)})
	request := asking(costing(5, entry("user", "a")))
	request.ID = "some-id"
	for range 3 {
		d := h.Check(t.Context(), request, true)
		expect(t, "peek", d, "pass allowed:0+1/1")
	}
	if len(h.store.used) != 0 || len(h.store.answered) != 0 || len(h.recorder.lines) != 0 {
		t.Errorf("peeking left traces: %v, %v, %v", h.store.used, h.store.answered, h.recorder.lines)
	}
}

func TestOverride(t *testing.T) {
	override := func(limit ratelimit.Limit, d ratelimit.Descriptor) ratelimit.Descriptor {
		d.Limit = &limit
		return d
	}
	h := start(
		t, engine.Options{},
		rules.Definition{Key: "user", Limits: perMinute(10), Name: "per-user"},
		rules.Definition{Key: "free", RateLimit: &rules.RateLimit{Unlimited: true}},
		rules.Definition{Key: "watched", Limits: perMinute(10), Shadow: true},
		rules.Definition{Key: "friend", Action: ratelimit.ActionAllow},
		rules.Definition{Key: "foe", Action: ratelimit.ActionDeny},
		rules.Definition{Key: "off", Limits: perMinute(10), Disabled: true},
	)
	one := fixed(1, time.Minute)
	for key, want := range map[string]string{
		"user":    "over denied!:0+0/1",
		"free":    "over denied!:0+0/1",
		"watched": "over denied!:0+0/1", // shadow mode is the rule's, not the override's
		"unknown": "over denied!:0+0/1",
		"off":     "over denied!:0+0/1",
		"friend":  "pass allowed", // an action is no limit to be replaced
		"foe":     "over denied!",
	} {
		h.decide(asking(override(one, entry(key, "a"))))
		d := h.decide(asking(override(one, entry(key, "a"))))
		expect(t, key, d, want)
		if s := d.Statuses[0]; s.Override != (s.Limit != nil) || key == "user" && s.Rule.Name != "per-user" {
			t.Errorf("%s: override %v, rule %v", key, s.Override, s.Rule)
		}
	}
	// It counts where the rule's limit with this window counts.
	expect(t, "without the override", h.decide(asking(entry("user", "a"))), "pass allowed:1+8/10")
	// What is no limit is not taken for one.
	for _, bad := range []ratelimit.Limit{{}, fixed(-1, time.Minute), fixed(1, 0), {Algorithm: 99, Count: 1, Window: time.Minute}} {
		d := h.decide(asking(override(bad, entry("user", "b"))))
		if s := d.Statuses[0]; s.Override || s.Limit == nil || s.Limit.Count != 10 {
			t.Errorf("the override %+v: %s", bad, brief(d))
		}
	}
	d := h.decide(ratelimit.Request{Domain: "other", Cost: 1, Descriptors: []ratelimit.Descriptor{override(one, entry("user", "a"))}})
	expect(t, "unknown domain", d, "pass none")
	h.store.used = nil
	h.decide(asking(override(fixed(5, time.Second), entry("user", "a")), override(one, entry("user", "a")), override(one, entry("unknown", "a"))))
	want := []string{"ratelimit:edge:unknown=a:60/fixed_window", "ratelimit:edge:user=a:1/fixed_window", "ratelimit:edge:user=a:60"}
	if got := h.store.keys(); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
}

// A caller uses its memory again; a limit that a store was given never changes.
func TestOverridesAreCopied(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(10)})
	name := []byte("first")
	limit := fixed(3, time.Minute)
	limit.Name = string(name)
	d := entry("user", "a")
	d.Limit = &limit
	first := h.decide(asking(d)).Statuses[0].Limit
	limit.Count, limit.Name = 4, "second"
	second := h.decide(asking(d)).Statuses[0].Limit
	if first.Count != 3 || first.Name != "first" || second.Count != 4 || second.Name != "second" {
		t.Errorf("overrides were %+v and %+v", first, second)
	}
	for i := range 10_000 { // more than are remembered
		limit.Count = int64(i + 1)
		if got := h.decide(asking(d)).Statuses[0].Limit.Count; got != limit.Count {
			t.Fatalf("the override of %d counts as %d", limit.Count, got)
		}
	}
}

func TestSeveralLimitsAreOneCharge(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Limits: []ratelimit.Limit{
		fixed(5, time.Second), fixed(8, time.Minute), {Algorithm: ratelimit.TokenBucket, Count: 20, Window: time.Minute, Name: "smooth"},
	}})
	expect(t, "all three", h.decide(asking(costing(5, entry("user", "a")))), "pass allowed:5+0/5")
	d := h.decide(asking(costing(4, entry("user", "a"))))
	expect(t, "two say no: the longer wait counts", d, "over denied!:0+0/5")
	if s := d.Statuses[0]; len(s.Limits) != 3 || s.Limits[0].Result.Allowed || s.Limits[1].Result.Allowed || !s.Limits[2].Result.Allowed {
		t.Errorf("limits %+v", s.Limits)
	}
	if got := h.store.used["ratelimit:edge:user=a:60/2"]; got != 5 {
		t.Errorf("%d were charged though the charge was denied", got)
	}
	if asked := h.store.asked[1]; len(asked.Hits) != 3 || asked.Hits[0].Partial {
		t.Errorf("the charge %+v", asked)
	}
}

func TestActionsAndUnlimited(t *testing.T) {
	definitions := []rules.Definition{
		{Key: "free", RateLimit: &rules.RateLimit{Unlimited: true}},
		{Key: "friend", Action: ratelimit.ActionAllow},
		{Key: "foe", Action: ratelimit.ActionDeny},
		{Key: "watched", Action: ratelimit.ActionDeny, Shadow: true},
		{Key: "off", Limits: perMinute(0), Disabled: true},
		{Key: "none", Limits: perMinute(0)},
		{Key: "user", Limits: perMinute(5)},
	}
	h := start(t, engine.Options{}, definitions...)
	for key, want := range map[string]string{
		"free":    "pass allowed",
		"friend":  "pass allowed",
		"foe":     "over denied!",
		"watched": "pass shadow_denied",
		"off":     "pass none",
		"none":    "over denied!:0+0/0",
	} {
		expect(t, key, h.decide(asking(entry(key, "a"))), want)
	}
	if got := h.store.keys(); len(got) != 0 {
		t.Errorf("counted in %q", got)
	}
	expect(t, "giving back to the refused", h.decide(asking(costing(-1, entry("foe", "a")))), "pass allowed")
	expect(t, "beside others", h.decide(asking(entry("foe", "a"), entry("user", "a"))), "over denied! allowed:1+4/5")
	shadow := start(t, engine.Options{ShadowMode: true}, definitions...)
	expect(t, "all in shadow mode", shadow.decide(asking(entry("foe", "a"), entry("none", "a"))), "pass shadow_denied shadow_denied:0+0/0")
}

func TestShadowModeCounts(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(1), Shadow: true}, rules.Definition{Key: "ip", Limits: perMinute(5)})
	h.decide(asking(entry("user", "a")))
	d := h.decide(asking(entry("user", "a"), entry("ip", "a")))
	expect(t, "over", d, "pass shadow_denied:0+0/1 allowed:1+4/5")
	if s := d.Statuses[0]; s.Over {
		t.Error("a shadow rule's status is over")
	}
}

func TestQuotaMode(t *testing.T) {
	quota := func(key string, count int64) rules.Definition {
		return rules.Definition{Key: key, Limits: perMinute(count), QuotaMode: true}
	}
	definitions := []rules.Definition{
		quota("a", 0), quota("b", 0), quota("c", 9),
		{Key: "shadow", Limits: perMinute(9), QuotaMode: true, Shadow: true},
		{Key: "hard", Limits: perMinute(0)},
		{Key: "soft", Limits: perMinute(9)},
		{Key: "free", RateLimit: &rules.RateLimit{Unlimited: true}},
		{Key: "foe", Action: ratelimit.ActionDeny, QuotaMode: true},
	}
	for _, c := range []struct {
		keys   string
		over   bool
		global bool // over with quota mode for all
	}{
		{"a", true, true},
		{"a b", true, true},
		{"a b c", false, false},
		{"c", false, false},
		{"a soft", true, false},
		{"c hard", true, false},
		{"a b free unmatched", true, true},
		{"a shadow", true, true},
		{"shadow", false, false},
		{"foe c", false, false},
		{"foe a", true, true},
		{"hard", true, true},
		{"soft hard", true, false},
		{"free unmatched", false, false},
	} {
		request := asking()
		for key := range strings.FieldsSeq(c.keys) {
			request.Descriptors = append(request.Descriptors, entry(key, "x"))
		}
		if d := start(t, engine.Options{}, definitions...).decide(request); d.Over != c.over {
			t.Errorf("%s: %s", c.keys, brief(d))
		}
		if d := start(t, engine.Options{QuotaMode: true}, definitions...).decide(request); d.Over != c.global {
			t.Errorf("%s with quota mode for all: %s", c.keys, brief(d))
		}
	}
	d := start(t, engine.Options{}, definitions...).decide(asking(entry("a", "x"), entry("c", "x")))
	expect(t, "the descriptor itself is over", d, "pass denied!:0+0/0 allowed:1+8/9")
}

func TestReplaces(t *testing.T) {
	limited := func(key, name string, replaces ...string) rules.Definition {
		return rules.Definition{Key: key, RateLimit: &rules.RateLimit{Unit: "minute", RequestsPerUnit: 5, Name: name, Replaces: replaces}}
	}
	h := start(
		t, engine.Options{},
		limited("base", "base"),
		limited("special", "special", "base"),
		limited("chain", "chain", "special"),
		rules.Definition{Key: "free", RateLimit: &rules.RateLimit{Unlimited: true, Name: "free", Replaces: []string{"base"}}},
		rules.Definition{Key: "ours", Name: "ours", Limits: []ratelimit.Limit{
			{Name: "inner", Algorithm: ratelimit.FixedWindow, Count: 7, Window: time.Minute},
		}},
		limited("outer", "outer", "inner"),
	)
	for _, c := range []struct{ keys, want string }{
		{"base", "pass allowed:1+4/5"},
		{"base special", "pass none allowed:1+4/5"},
		{"special base", "pass allowed:1+4/5 none"},
		{"base special chain", "pass none none allowed:1+4/5"}, // replaced rules still replace
		{"base free", "pass none allowed"},
		{"ours outer", "pass none allowed:1+4/5"}, // by a limit's name
		{"base base", "pass allowed:1+4/5 allowed:1+3/5"},
	} {
		request := asking()
		for key := range strings.FieldsSeq(c.keys) {
			request.Descriptors = append(request.Descriptors, entry(key, c.keys))
		}
		h.recorder.lines = nil
		d := h.decide(request)
		expect(t, c.keys, d, c.want)
		for i, s := range d.Statuses {
			if s.Outcome == ratelimit.OutcomeNone && (s.Rule != nil || h.recorder.lines[i] != "- none 1") {
				t.Errorf("%s: the dropped rule %v shows, recorded %q", c.keys, s.Rule, h.recorder.lines[i])
			}
		}
	}
	limit := fixed(1, time.Minute)
	override := entry("base", "o")
	override.Limit = &limit
	expect(t, "an override is not replaced", h.decide(asking(override, entry("special", "o"))), "pass allowed:1+0/1 allowed:1+4/5")
}

func TestDefaultCountsEachDescriptor(t *testing.T) {
	table, err := rules.Compile(rules.Options{}, &rules.Source{Name: "test", Domains: []rules.Domain{{
		Name: "edge", Default: &rules.Definition{Limits: perMinute(1)},
		Descriptors: []rules.Definition{{Key: "user", Limits: perMinute(5)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	store := &ledger{}
	l := engine.New(store, engine.Options{})
	l.SetTable(table)
	expect(t, "default", l.Check(t.Context(), asking(entry("a", "1"), entry("a", "2"), entry("user", "x"), entry("a", "1")), false),
		"over allowed:1+0/1 allowed:1+0/1 allowed:1+4/5 denied!:0+0/1")
}

func TestFallback(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(5)}, rules.Definition{Key: "off", Limits: perMinute(5), Disabled: true})
	limit := fixed(1, time.Minute)
	request := asking(entry("user", "a"), entry("other", "a"), entry("off", "a"))
	request.Fallback = &limit
	expect(t, "fallback", h.decide(request), "pass allowed:1+4/5 allowed:1+0/1 allowed:1+0/1")
	request.Domain = "elsewhere"
	d := h.decide(request)
	expect(t, "fallback in a domain without rules", d, "pass allowed:1+0/1 allowed:1+0/1 allowed:1+0/1")
	if d.UnknownDomain || h.recorder.unknown != 0 {
		t.Error("a domain with a fallback counts as unknown")
	}
}

func TestAtomic(t *testing.T) {
	h := start(
		t, engine.Options{},
		rules.Definition{Key: "user", Limits: perMinute(5)},
		rules.Definition{Key: "ip", Limits: perMinute(2)},
		rules.Definition{Key: "watched", Limits: perMinute(0), Shadow: true},
		rules.Definition{Key: "quota", Limits: perMinute(0), QuotaMode: true},
		rules.Definition{Key: "budget", Limits: perMinute(9), QuotaMode: true},
		rules.Definition{Key: "foe", Action: ratelimit.ActionDeny},
	)
	atomic := func(descriptors ...ratelimit.Descriptor) ratelimit.Request {
		r := asking(descriptors...)
		r.Atomic = true
		return r
	}
	user, ip := entry("user", "a"), entry("ip", "a")
	expect(t, "both fit", h.decide(atomic(user, ip)), "pass allowed:1+4/5 allowed:1+1/2")
	expect(t, "one does not", h.decide(atomic(costing(3, user), costing(3, ip))), "over allowed:0+4/5 denied!:0+0/2")
	expect(t, "no part of a cost", h.decide(atomic(costing(9, user))), "over denied!:0+0/5")
	// One key twice: the costs are added.
	expect(t, "a key twice", h.decide(atomic(costing(2, user), costing(1, user))), "pass allowed:2+1/5 allowed:1+1/5")
	// What may be over while the request goes on must not keep the rest from being counted.
	expect(t, "shadow", h.decide(atomic(ip, entry("watched", "a"))), "pass allowed:1+0/2 shadow_denied:0+0/0")
	expect(t, "quota", h.decide(atomic(entry("quota", "a"), user, entry("budget", "a"))), "pass denied!:0+0/0 allowed:1+0/5 allowed:1+8/9")
	expect(t, "refused", h.decide(atomic(entry("foe", "a"), entry("user", "b"), entry("budget", "b"))), "over denied! allowed:0+5/5 allowed:0+9/9")

	limit := fixed(1, time.Minute)
	tight := entry("user", "c")
	tight.Limit = &limit
	expect(t, "the tighter of two limits on one key", h.decide(atomic(entry("user", "c"), tight)), "over denied!:0+0/5 denied!:0+0/1")
}

func TestRequestID(t *testing.T) {
	h := start(
		t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(5)}, rules.Definition{Key: "ip", Limits: perMinute(5)},
		rules.Definition{Key: "watched", Limits: perMinute(5), Shadow: true},
	)
	request := asking(entry("user", "a"), entry("ip", "a"), entry("watched", "a"))
	request.ID = "id with spaces"
	for range 3 {
		expect(t, "the same again", h.decide(request), "pass allowed:1+4/5 allowed:1+4/5 allowed:1+4/5")
	}
	first := h.store.asked[:2]
	if len(first[0].Hits) != 2 || first[0].ID == first[1].ID || strings.Contains(first[0].ID, " ") {
		t.Errorf("an idempotent request is one charge, and one for each shadow rule: %+v", first)
	}
	request.Descriptors[0] = entry("user", "b")
	d := h.Check(t.Context(), request, false)
	if !errors.Is(d.Err, ratelimit.ErrConflict) || d.Over || d.Degraded {
		t.Errorf("the same id with other content: %+v", d)
	}
	request.ID = strings.Repeat("long", 1000)
	h.decide(request)
	if id := h.store.asked[len(h.store.asked)-1].ID; len(id) > 64 {
		t.Errorf("a long id stays %d bytes", len(id))
	}
}

func TestStoreFailure(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name     string
		degraded ratelimit.FailureMode
		err      error
		allowed  bool
		shadow   bool
		want     string
	}{
		{"unguarded", 0, broken, false, false, "pass failed_open"},
		{"open", ratelimit.FailOpen, nil, true, false, "pass failed_open:1+4/5"},
		{"closed", ratelimit.FailClosed, nil, false, false, "over failed_closed!:0+0/5"},
		{"closed, in shadow mode", ratelimit.FailClosed, nil, false, true, "pass failed_open:0+0/5"},
		{"local, allowed", ratelimit.FailLocal, nil, true, false, "pass local:1+4/5"},
		{"local, denied", ratelimit.FailLocal, nil, false, false, "over local!:0+0/5"},
		{"local, denied in shadow mode", ratelimit.FailLocal, nil, false, true, "pass local:0+0/5"},
	} {
		h := start(t, engine.Options{ShadowMode: c.shadow}, rules.Definition{Key: "user", Limits: perMinute(5), OnFailure: ratelimit.FailClosed})
		h.store.fail = func(charge *ratelimit.Charge) {
			if charge.OnFailure != ratelimit.FailClosed {
				t.Errorf("%s: the rule's failure mode did not reach the store", c.name)
			}
			charge.Err, charge.Degraded = c.err, c.degraded
			if !c.allowed {
				charge.Results[0] = ratelimit.Result{RetryAfter: time.Second}
			}
		}
		d := h.decide(asking(entry("user", "a"), entry("none", "x")))
		expect(t, c.name, d, c.want+" none")
		if !d.Degraded || !errors.Is(d.StoreErr, c.err) || d.Statuses[0].Degraded == ratelimit.FailureDefault {
			t.Errorf("%s: degraded %v, error %v, status %v", c.name, d.Degraded, d.StoreErr, d.Statuses[0].Degraded)
		}
	}
}

func TestBatchesAreDecidedTogether(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(3)})
	var b engine.Batch
	for range 5 {
		b.Requests = append(b.Requests, asking(entry("user", "a"), entry("user", "b")), ratelimit.Request{Domain: "edge"}, asking(entry("x", "y")))
	}
	h.Decide(t.Context(), &b)
	if h.store.takes != 1 {
		t.Errorf("the store was asked %d times", h.store.takes)
	}
	allowed := 0
	for i := range b.Decisions {
		switch i % 3 {
		case 0:
			if len(b.Decisions[i].Statuses) != 2 || b.Decisions[i].Over != (i >= 9) {
				t.Errorf("request %d: %s", i, brief(b.Decisions[i]))
			}
			if !b.Decisions[i].Over {
				allowed++
			}
		case 1:
			if !errors.Is(b.Decisions[i].Err, engine.ErrNoDescriptors) {
				t.Errorf("request %d: %v", i, b.Decisions[i].Err)
			}
		default:
			expect(t, "unmatched", b.Decisions[i], "pass none")
		}
	}
	if allowed != 3 {
		t.Errorf("%d allowed at a limit of 3", allowed)
	}
	b.Reset()
	b.Requests = append(b.Requests, asking(entry("user", "c")))
	h.Decide(t.Context(), &b)
	if len(b.Decisions) != 1 {
		t.Fatalf("%d decisions about 1 request", len(b.Decisions))
	}
	expect(t, "after Reset", b.Decisions[0], "pass allowed:1+2/3")
}

func TestReset(t *testing.T) {
	h := start(
		t, engine.Options{},
		rules.Definition{Key: "user", Limits: []ratelimit.Limit{fixed(5, time.Minute), fixed(9, time.Hour)}},
		rules.Definition{Key: "shared", Value: "a*", Limits: perMinute(5), ShareThreshold: true},
	)
	limit := fixed(3, time.Second)
	override := entry("user", "a")
	override.Limit = &limit
	h.decide(asking(entry("user", "a"), entry("user", "b"), entry("shared", "a1"), override))
	if err := h.Reset(t.Context(), "edge", entry("user", "a").Entries, limit); err != nil {
		t.Fatal(err)
	}
	if err := h.Reset(t.Context(), "edge", entry("shared", "a2").Entries); err != nil {
		t.Fatal(err)
	}
	if err := h.Reset(t.Context(), "edge", entry("nothing", "there").Entries); err != nil {
		t.Fatal(err)
	}
	if got := h.Keys("edge", entry("nothing", "there").Entries, limit); !slices.Equal(got,
		[]string{"ratelimit:edge:nothing=there:1", "ratelimit:edge:nothing=there:1/fixed_window"}) {
		t.Errorf("keys of a fallback or an override %q", got)
	}
	want := []string{"ratelimit:edge:user=b:3600", "ratelimit:edge:user=b:60"}
	if got := h.store.keys(); !slices.Equal(got, want) {
		t.Errorf("after the reset there are %q, want %q", got, want)
	}
	if got := h.Keys("edge", entry("user", "a").Entries, limit, fixed(1, time.Minute)); !slices.Equal(got,
		[]string{"ratelimit:edge:user=a:60", "ratelimit:edge:user=a:3600", "ratelimit:edge:user=a:1/fixed_window"}) {
		t.Errorf("keys %q", got)
	}
}

func TestSharedThreshold(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Value: "bot-*", Limits: perMinute(2), ShareThreshold: true})
	h.decide(asking(entry("user", "bot-1")))
	h.decide(asking(entry("user", "bot-2")))
	expect(t, "one counter for all", h.decide(asking(entry("user", "bot-3"))), "over denied!:0+0/2")
	limit := fixed(1, time.Minute)
	own := entry("user", "bot-3")
	own.Limit = &limit
	expect(t, "an override is for its own value", h.decide(asking(own)), "pass allowed:1+0/1")
}

// A request sees one table, whatever happens meanwhile.
func TestTablesAreSwappedBetweenRequests(t *testing.T) {
	h := start(t, engine.Options{}, rules.Definition{Key: "user", Limits: perMinute(1 << 40)})
	tables := []*rules.Table{h.Table(), edge(t, rules.Definition{Key: "ip", Limits: perMinute(1 << 40)})}
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				h.SetTable(tables[i%2])
			}
		}
	})
	for range 2000 {
		d := h.decide(asking(entry("user", "a"), entry("ip", "a"), entry("user", "b"), entry("ip", "b")))
		first := d.Statuses[0].Limit != nil
		for i, s := range d.Statuses {
			if (s.Limit != nil) != (first == (i%2 == 0)) {
				t.Fatalf("a request saw two tables: %s", brief(d))
			}
		}
	}
	close(stop)
	swapping.Wait()
}
