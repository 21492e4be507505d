package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// watched tells the keys of what it passes on.
type watched struct {
	engine.Store
	keys []string
}

func (w *watched) Take(ctx context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		for j := range charges[i].Hits {
			w.keys = append(w.keys, strings.Clone(charges[i].Hits[j].Key))
		}
	}
	w.Store.Take(ctx, charges)
}

func TestEnvoyKeys(t *testing.T) {
	source, problems := rules.Parse("edge.yaml", []byte(`
domain: edge/http
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: path
    value: /api*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 2}
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 2}
  - key: free
    rate_limit: {unlimited: true}
  - key: own
    limits: [{limit: 2, window: 1h, algorithm: fixed_window}]
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	table, err := rules.Compile(rules.Options{EnvoyKeys: true}, source)
	if err != nil {
		t.Fatal(err)
	}
	memory := memstore.New(memstore.Options{})
	defer memory.Close()
	store := &watched{Store: memory}
	l := engine.New(store, engine.Options{EnvoyKeys: true, EnvoyPrefix: "swap:"})
	l.SetTable(table)

	override := func(d ratelimit.Descriptor, limit ratelimit.Limit) ratelimit.Descriptor {
		d.Limit = &limit
		return d
	}
	hour := ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: 1, Window: time.Hour}
	bucket := ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 1, Window: time.Hour}
	long := strings.Repeat("x", 60_000)
	for _, c := range []struct {
		descriptor ratelimit.Descriptor
		want       string
	}{
		{entry("user", "ann"), "swap:edge/http_user_ann_"},
		{entry("user", ""), "swap:edge/http_user__"},
		{entry("user", "a_b:é|%"), "swap:edge/http_user_a_b:é|%_"},
		{entry("path", "/api/v1"), "swap:edge/http_path_/api*_"},
		{ratelimit.Descriptor{Entries: []ratelimit.Entry{{Key: "path", Value: "/api/v2"}, {Key: "user", Value: "7"}}}, "swap:edge/http_path_/api*_user_7_"},
		{entry("free", "a"), ""},
		{entry("none", "a"), ""},
		{entry("own", "a"), "ratelimit:edge/http:own=a:3600"},
		{override(entry("none", "a"), hour), "swap:edge/http_none_a_"},
		{override(entry("path", "/api/v1"), hour), "swap:edge/http_path_/api/v1_"},
		{override(entry("none", "a"), bucket), "ratelimit:edge/http:none=a:3600/token_bucket"},
	} {
		store.keys = nil
		l.Check(t.Context(), ratelimit.Request{Domain: "edge/http", Cost: 1, Descriptors: []ratelimit.Descriptor{c.descriptor}}, false)
		if got := strings.Join(store.keys, " "); got != c.want {
			t.Errorf("%q is counted at %q, want %q", c.descriptor.Entries, got, c.want)
		}
	}

	store.keys = nil
	l.Check(t.Context(), ratelimit.Request{Domain: "edge/http", Cost: 1, Descriptors: []ratelimit.Descriptor{entry("user", long)}}, false)
	l.Check(t.Context(), ratelimit.Request{Domain: "edge/http", Cost: 1, Descriptors: []ratelimit.Descriptor{entry("user", long+"y")}}, false)
	if len(store.keys) != 2 || len(store.keys[0]) > 20_000 || store.keys[0] == store.keys[1] {
		t.Errorf("keys of %d and %d bytes for values of 60,000", len(store.keys[0]), len(store.keys[1]))
	}
}

func TestEnvoyKeysAreReset(t *testing.T) {
	source, problems := rules.Parse("edge.yaml", []byte("{domain: edge, descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 2}}]}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	table, err := rules.Compile(rules.Options{EnvoyKeys: true}, source)
	if err != nil {
		t.Fatal(err)
	}
	memory := memstore.New(memstore.Options{})
	defer memory.Close()
	l := engine.New(memory, engine.Options{EnvoyKeys: true})
	l.SetTable(table)
	request := asking(entry("user", "ann"))
	for _, want := range []int64{1, 0} {
		if d := l.Check(t.Context(), request, false); d.Over || d.Statuses[0].Remaining != want {
			t.Errorf("%d left, want %d", d.Statuses[0].Remaining, want)
		}
	}
	if !l.Check(t.Context(), request, false).Over {
		t.Error("a third hit is allowed")
	}
	if err := l.Reset(t.Context(), "edge", request.Descriptors[0].Entries); err != nil {
		t.Fatal(err)
	}
	if d := l.Check(t.Context(), request, true); d.Statuses[0].Remaining != 2 {
		t.Errorf("%d left after a reset, want 2", d.Statuses[0].Remaining)
	}
	if keys := l.Keys("edge", request.Descriptors[0].Entries); len(keys) != 1 || keys[0] != "edge_user_ann_" {
		t.Errorf("keys %q", keys)
	}
}
