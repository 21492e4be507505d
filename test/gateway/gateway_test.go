//go:build gateway && linux

package gateway

import (
	"net/http"
	"testing"
)

func TestGateway(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"a changed policy, and a deleted one", changed},
		{"a limit for each value of a header", eachValue},
		{"a limit for one value", oneValue},
		{"a limit that routes share", shared},
		{"a limit for a range of addresses", addresses},
		{"a limit for a method and a path", methodAndPath},
		{"metrics and the probe", metrics},
		{"Redis is paused", redisPaused},
		{"the rate limit service is killed, and comes back", serviceKilled},
		{"the control plane is killed, and comes back", planeKilled},
		{"certificates are replaced", certificates},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.run(t, w) }) {
			t.FailNow() // what follows would wait for what has failed
		}
	}
}

func eachValue(t *testing.T, w *world) {
	const rule = "{clientSelectors: [{headers: [{name: x-user, type: Distinct}]}], "
	w.apply(t, "distinct", route("distinct")+policy("distinct", rule+aDay(3)+"}", "distinct"), request{route: "distinct"}, "distinct", "requests_per_unit=3,")
	w.exactly(t, 3, request{route: "distinct", user: "ann"})
	w.exactly(t, 3, request{route: "distinct", user: "bob"})
	w.passes(t, request{route: "distinct"})
}

func oneValue(t *testing.T, w *world) {
	w.apply(t, "exact", route("exact")+policy("exact", annHas(4), "exact"), request{route: "exact"}, "exact", "requests_per_unit=4,")
	w.exactly(t, 4, request{route: "exact", user: "ann"})
	w.passes(t, request{route: "exact", user: "bob"})
}

// annHas is a rule for one value of a header.
func annHas(requests int) string {
	return "{clientSelectors: [{headers: [{name: x-user, value: ann}]}], " + aDay(requests) + "}"
}

func shared(t *testing.T, w *world) {
	const rule = "{shared: true, clientSelectors: [{headers: [{name: x-user, type: Distinct}]}], "
	w.apply(t, "shared", route("shared-1")+route("shared-2")+policy("shared", rule+aDay(5)+"}", "shared-1", "shared-2"),
		request{route: "shared-2"}, "default/shared", "requests_per_unit=5,")
	for range 3 {
		w.passes(t, request{route: "shared-1", user: "ann"})
	}
	w.exactly(t, 2, request{route: "shared-2", user: "ann"})
	if status := w.send(t, request{route: "shared-1", user: "ann"}); status != http.StatusTooManyRequests {
		t.Errorf("the first route answers %d after the second one has used the limit up", status)
	}
}

func addresses(t *testing.T, w *world) {
	w.apply(t, "range", route("range")+policy("range", "{clientSelectors: [{sourceCIDR: {value: 127.0.5.0/24}}], "+aDay(6)+"}", "range"),
		request{route: "range"}, "range", "requests_per_unit=6,")
	for range 3 {
		w.passes(t, request{route: "range", from: "127.0.5.1"})
	}
	w.exactly(t, 3, request{route: "range", from: "127.0.5.2"})
	w.passes(t, request{route: "range", from: "127.0.6.1"})

	w.apply(t, "address", route("address")+policy("address", "{clientSelectors: [{sourceCIDR: {value: 127.0.5.0/24, type: Distinct}}], "+aDay(2)+"}", "address"),
		request{route: "address"}, "address", "requests_per_unit=2,")
	w.exactly(t, 2, request{route: "address", from: "127.0.5.1"})
	w.exactly(t, 2, request{route: "address", from: "127.0.5.2"})
	w.passes(t, request{route: "address", from: "127.0.6.1"})

	w.apply(t, "outside", route("outside")+policy("outside", "{clientSelectors: [{sourceCIDR: {value: 127.0.5.0/24, invert: true}}], "+aDay(3)+"}", "outside"),
		request{route: "outside", from: "127.0.5.1"}, "outside", "requests_per_unit=3,")
	w.exactly(t, 3, request{route: "outside", from: "127.0.6.1"})
	w.passes(t, request{route: "outside", from: "127.0.5.1"})
}

func methodAndPath(t *testing.T, w *world) {
	const rule = "{clientSelectors: [{methods: [{value: POST}], path: {type: PathPrefix, value: /orders}}], "
	w.apply(t, "method", route("method")+policy("method", rule+aDay(7)+"}", "method"), request{route: "method"}, "method", "requests_per_unit=7,")
	w.exactly(t, 7, request{route: "method", method: http.MethodPost, path: "/orders/1"})
	w.passes(t, request{route: "method", method: http.MethodGet, path: "/orders/1"})
	w.passes(t, request{route: "method", method: http.MethodPost, path: "/carts"})
}
