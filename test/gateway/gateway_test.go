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
		{"a limit for each value of a header", eachValue},
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
	if status := w.send(t, request{route: "distinct"}); status != http.StatusOK {
		t.Errorf("a request without the header is answered %d", status)
	}
}
