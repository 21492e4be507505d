//go:build gateway && linux

package gateway

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir/test/servers"
)

const (
	// effect is within what time a changed policy is in force.
	effect = 2 * time.Second
	// failOpen is within what time a request is let pass whose limit nobody can tell: weir's deadline of 100 ms or Envoy's timeout, with room.
	failOpen = 2 * time.Second
	// recovery is within what time limits are in force again once what was down is back: breakers and backoffs on all sides.
	recovery = 20 * time.Second
)

func changed(t *testing.T, w *world) {
	ann := request{route: "changed", user: "ann"}
	unlimited, raised, lowered := route("changed"), route("changed")+policy("changed", annHas(1000), "changed"), route("changed")+policy("changed", annHas(2), "changed")
	w.apply(t, "changed", route("changed")+policy("changed", annHas(3), "changed"), request{route: "changed"}, "changed", "requests_per_unit=3,")
	w.exactly(t, 3, ann)
	var higher, lower, deleted []time.Duration
	for range 3 {
		higher = append(higher, w.takes(t, "changed", raised, ann, http.StatusOK))
		lower = append(lower, w.takes(t, "changed", lowered, ann, http.StatusTooManyRequests))
		deleted = append(deleted, w.takes(t, "changed", unlimited, ann, http.StatusOK))
		w.takes(t, "changed", lowered, ann, http.StatusTooManyRequests)
	}
	for what, times := range map[string][]time.Duration{"a higher limit": higher, "a lower limit": lower, "a deleted policy": deleted} {
		t.Logf("figure: %s is in force after %v", what, times)
		if quickest := slices.Min(times); quickest > effect {
			t.Errorf("%s is in force after %v at the quickest, want it within %v", what, quickest, effect)
		}
	}
}

// takes is the time from a file's change until a request is answered as it says. The control plane's own work is most of it: on a busy machine a
// single change may take longer than what is asked of the quickest.
func (w *world) takes(t *testing.T, name, resources string, r request, want int) time.Duration {
	t.Helper()
	w.plane.write(name+".yaml", resources)
	begin := time.Now()
	for w.send(t, r) != want {
		if time.Since(begin) > recovery {
			t.Fatalf("%+v is not answered %d %v after the policy has changed", r, want, recovery)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin).Round(time.Millisecond)
}

// over makes a route whose limit for ann is used up.
func (w *world) over(t *testing.T, name string) request {
	t.Helper()
	w.apply(t, name, route(name)+policy(name, annHas(3), name), request{route: name}, name, "requests_per_unit=3,")
	w.exactly(t, 3, request{route: name, user: "ann"})
	return request{route: name, user: "ann"}
}

// passesInTime asserts that requests pass although nobody can tell their limit, none of them late, and logs the slowest.
func (w *world) passesInTime(t *testing.T, what string, r request) {
	t.Helper()
	var slowest time.Duration
	for range 30 {
		begin := time.Now()
		w.passes(t, r)
		slowest = max(slowest, time.Since(begin))
	}
	if slowest > failOpen {
		t.Errorf("%s: a request passes after %v, want it within %v", what, slowest, failOpen)
	}
	t.Logf("figure: %s: requests pass within %v", what, slowest.Round(time.Millisecond))
}

func redisPaused(t *testing.T, w *world) {
	ann := w.over(t, "paused")
	w.redis.Pause()
	defer w.redis.Resume()
	w.passesInTime(t, "Redis is paused", ann)
	if status, body := get(t, probe); status != http.StatusOK {
		t.Errorf("the probe is answered %d %s: the service would be restarted for its Redis", status, body)
	}
	w.redis.Resume()
	within(t, recovery, "limits are in force after Redis's pause", func() bool { return w.send(t, ann) == http.StatusTooManyRequests })
}

func serviceKilled(t *testing.T, w *world) {
	ann := w.over(t, "killed")
	w.service.process.Kill()
	w.passesInTime(t, "the service is dead", ann)
	w.service.start()
	within(t, recovery, "limits are in force after the service's restart", func() bool { return w.send(t, ann) == http.StatusTooManyRequests })
}

func planeKilled(t *testing.T, w *world) {
	ann := w.over(t, "headless")
	w.plane.process.Kill()
	for range 20 {
		if status := w.send(t, ann); status != http.StatusTooManyRequests {
			t.Fatalf("without the control plane a request over the limit is answered %d", status)
		}
	}
	w.passes(t, request{route: "headless", user: "bob"})

	w.plane.start()
	raised, lowered := route("headless")+policy("headless", annHas(1000), "headless"), route("headless")+policy("headless", annHas(2), "headless")
	t.Logf("figure: a policy is in force %v after the control plane's start", w.takes(t, "headless", raised, ann, http.StatusOK))
	t.Logf("figure: the next one is in force after %v", w.takes(t, "headless", lowered, ann, http.StatusTooManyRequests))
}

// metrics asserts that what dashboards read is there under its names, and moves.
func metrics(t *testing.T, w *world) {
	w.apply(t, "scraped", route("scraped")+policy("scraped", annHas(3), "scraped"), request{route: "scraped"}, "scraped", "requests_per_unit=3,")
	before := map[string]float64{}
	names := []string{
		"ratelimit_service_rate_limit_total_hits", "ratelimit_service_rate_limit_within_limit", "ratelimit_service_rate_limit_over_limit",
		"ratelimit_service_total_requests", "ratelimit_service_config_load_success",
	}
	for _, name := range names {
		before[name] = sum(t, name)
	}
	w.exactly(t, 3, request{route: "scraped", user: "ann"}) // and two over it
	w.plane.write("scraped.yaml", route("scraped"))
	for i, least := range []float64{5, 3, 2, 5, 1} {
		name := names[i]
		servers.Eventually(t, name+" has grown", func() bool { return sum(t, name)-before[name] >= least })
	}
	if status, body := get(t, probe); status != http.StatusOK || body != "OK" {
		t.Errorf("the probe is answered %d %q, want 200 OK", status, body)
	}
}

// sum adds up the series of a metric.
func sum(t *testing.T, name string) float64 {
	t.Helper()
	status, text := get(t, metricsURL)
	if status != http.StatusOK {
		t.Fatalf("%s is answered %d %s", metricsURL, status, text)
	}
	total := 0.0
	for _, line := range regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		total += value
	}
	return total
}
