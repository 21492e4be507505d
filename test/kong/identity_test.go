package kong_test

import (
	"maps"
	"testing"

	"github.com/weirhq/weir/test/kong"
)

// together reports whether two requests count in one counter of a limit of one an hour.
func together(t *testing.T, node *kong.Node, values map[string]any, a, b *kong.Request) bool {
	t.Helper()
	all := embedded(map[string]any{"hour": 1})
	maps.Copy(all, values)
	config := configure(all)
	if must(t, node.Workers[0], config, a).Denied() {
		t.Fatal("the first request was denied")
	}
	return must(t, node.Workers[0], config, b).Denied()
}

func TestIdentities(t *testing.T) {
	node := kong.Start(t, 1)
	ann := kong.Request{
		IP: "192.0.2.1", Method: "GET", Path: "/a", Query: "user=ann&user=bob&flag", Consumer: "c1", Credential: "k1", Route: "r1", Service: "s1",
		Headers: map[string]string{"X-User": "ann", "Authorization": token(`{"sub":"ann","org":{"id":7},"a.b":"dotted"}`)},
	}
	with := func(change func(*kong.Request)) kong.Request {
		other := ann
		other.Headers = maps.Clone(ann.Headers)
		change(&other)
		return other
	}
	for name, c := range map[string]struct {
		values map[string]any
		b      kong.Request
		want   bool
	}{
		"same consumer, other address":   {map[string]any{"limit_by": "consumer"}, with(func(r *kong.Request) { r.IP = "192.0.2.2" }), true},
		"other consumer":                 {map[string]any{"limit_by": "consumer"}, with(func(r *kong.Request) { r.Consumer = "c2" }), false},
		"other credential":               {map[string]any{"limit_by": "credential"}, with(func(r *kong.Request) { r.Credential = "k2" }), false},
		"other address":                  {map[string]any{"limit_by": "ip"}, with(func(r *kong.Request) { r.IP = "192.0.2.2" }), false},
		"other service":                  {map[string]any{"limit_by": "service"}, with(func(r *kong.Request) { r.Service = "s2" }), false},
		"other route":                    {map[string]any{"limit_by": "route"}, with(func(r *kong.Request) { r.Route = "r2" }), false},
		"other header":                   {map[string]any{"limit_by": "header", "header_name": "X-User"}, with(func(r *kong.Request) { r.Headers["X-User"] = "bob" }), false},
		"same header":                    {map[string]any{"limit_by": "header", "header_name": "x_user"}, with(func(r *kong.Request) { r.Path = "/b" }), true},
		"other path":                     {map[string]any{"limit_by": "path"}, with(func(r *kong.Request) { r.Path = "/b" }), false},
		"other method":                   {map[string]any{"limit_by": "method"}, with(func(r *kong.Request) { r.Method = "PUT" }), false},
		"the first query argument":       {map[string]any{"limit_by": "query_arg", "query_arg": "user"}, with(func(r *kong.Request) { r.Query = "user=ann" }), true},
		"a query argument that is empty": {map[string]any{"limit_by": "query_arg", "query_arg": "flag"}, with(func(r *kong.Request) { r.Query = "" }), true}, // both by address
		"other claim":                    {map[string]any{"limit_by": "jwt_claim", "claim_name": "sub"}, with(func(r *kong.Request) { r.Headers["Authorization"] = token(`{"sub":"bob"}`) }), false},
		"nested claim":                   {map[string]any{"limit_by": "jwt_claim", "claim_name": "org.id"}, with(func(r *kong.Request) { r.Headers["Authorization"] = token(`{"org":{"id":7}}`) }), true},
		"claim with a dot":               {map[string]any{"limit_by": "jwt_claim", "claim_name": "a.b"}, with(func(r *kong.Request) { r.Headers["Authorization"] = token(`{"a.b":"dotted"}`) }), true},
		"no token, same address":         {map[string]any{"limit_by": "jwt_claim", "claim_name": "sub"}, with(func(r *kong.Request) { r.Headers["Authorization"] = "Bearer x" }), false},
		"compound, both the same":        {map[string]any{"compound_identifier": []string{"consumer", "path"}}, with(func(r *kong.Request) { r.IP = "x" }), true},
		"compound, one other":            {map[string]any{"compound_identifier": []string{"consumer", "path"}}, with(func(r *kong.Request) { r.Path = "/b" }), false},
		"a header that names an address": {
			map[string]any{"limit_by": "header", "header_name": "X-User"},
			with(func(r *kong.Request) { delete(r.Headers, "X-User"); r.IP = "ann" }), false,
		},
		"bytes that are no UTF-8": {
			map[string]any{"limit_by": "header", "header_name": "X-User"},
			with(func(r *kong.Request) { r.Headers["X-User"] = "\xff\xfeann" }), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := together(t, node, c.values, &ann, &c.b); got != c.want {
				t.Errorf("counted together: %v, want %v", got, c.want)
			}
		})
	}
}

func TestOnMissing(t *testing.T) {
	node := kong.Start(t, 1)
	here, there := &kong.Request{IP: "192.0.2.1"}, &kong.Request{IP: "192.0.2.2"}
	for mode, want := range map[string]struct{ same, other bool }{
		"ip": {true, false}, "shared": {true, true}, "skip": {false, false},
	} {
		t.Run(mode, func(t *testing.T) {
			values := map[string]any{"limit_by": "consumer", "on_missing": mode}
			if got := together(t, node, values, here, here); got != want.same {
				t.Errorf("two requests of one address count together: %v, want %v", got, want.same)
			}
			if got := together(t, node, values, here, there); got != want.other {
				t.Errorf("requests of two addresses count together: %v, want %v", got, want.other)
			}
		})
	}
	t.Run("path", func(t *testing.T) {
		values := map[string]any{"limit_by": "path", "path": "/login", "on_missing": "skip"}
		login, other := &kong.Request{IP: "a", Path: "/login"}, &kong.Request{IP: "a", Path: "/x"}
		if !together(t, node, values, login, &kong.Request{IP: "b", Path: "/login"}) {
			t.Error("the path that is limited was not")
		}
		if together(t, node, values, other, other) {
			t.Error("another path was limited")
		}
	})
}

// As with Kong's own plugin, each route or service that has the plugin counts by itself, and a namespace joins them.
func TestScope(t *testing.T) {
	node := kong.Start(t, 1)
	pass := func(route string, values map[string]any) bool {
		all := embedded(map[string]any{"limit_by": "ip", "hour": 1, "key_prefix": "scope"})
		maps.Copy(all, values)
		config := configure(all)
		config.Route = route
		return !must(t, node.Workers[0], config, anyone(0)).Denied()
	}
	if !pass("r1", nil) || !pass("r2", nil) {
		t.Error("two routes share a counter")
	}
	if pass("r1", nil) {
		t.Error("a route's second plugin has a counter of its own")
	}
	if !pass("r1", map[string]any{"namespace": "n"}) || pass("r2", map[string]any{"namespace": "n"}) {
		t.Error("a namespace does not join two routes")
	}
	if !pass("r1", map[string]any{"namespace": "m"}) {
		t.Error("two namespaces share a counter")
	}
}

func TestWindows(t *testing.T) {
	node := kong.Start(t, 1)
	allowed := func(values map[string]any) (n int) {
		all := embedded(map[string]any{"limit_by": "ip"})
		maps.Copy(all, values)
		config := configure(all)
		for range 10 {
			if !must(t, node.Workers[0], config, anyone(0)).Denied() {
				n++
			}
		}
		return n
	}
	for name, c := range map[string]struct {
		values map[string]any
		want   int
	}{
		"the smaller one":         {map[string]any{"hour": 7, "day": 4}, 4},
		"all of Kong's":           {map[string]any{"second": 100, "minute": 50, "hour": 9, "day": 8, "month": 7, "year": 6}, 6},
		"lists":                   {map[string]any{"limit": []int{8, 3}, "window_size": []int{7200, 86400}}, 3},
		"sliding":                 {map[string]any{"hour": 3, "window_type": "sliding"}, 3},
		"a bucket":                {map[string]any{"day": 5, "window_type": "token_bucket"}, 5},
		"a sliding month":         {map[string]any{"month": 2, "window_type": "sliding"}, 2},
		"a denial charges no one": {map[string]any{"limit": []int{1, 9}, "window_size": []int{86400, 172800}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := allowed(c.values); got != c.want {
				t.Errorf("%d of 10 passed, want %d", got, c.want)
			}
		})
	}
	t.Run("all or nothing", func(t *testing.T) {
		config := configure(embedded(map[string]any{"limit_by": "ip", "limit": []int{1, 9}, "window_size": []int{86400, 172800}}))
		var last *kong.Response
		for range 5 {
			last = must(t, node.Workers[0], config, anyone(0))
		}
		if got := last.Headers["X-RateLimit-Remaining-172800"]; got != "8" {
			t.Errorf("the larger window has %s left, want 8: denials were charged to it", got)
		}
	})
}
