//go:build gateway && linux

package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/test/servers"
)

// world is everything that runs.
type world struct {
	redis    *servers.RedisServer
	upstream *servers.UpstreamServer
	plane    *plane
	service  *service
}

func newWorld(t *testing.T) *world {
	t.Helper()
	mapper, err := os.ReadFile(filepath.Join(servers.Root(t), "build", "peers", "envoy-gateway.statsd.yaml"))
	if err != nil {
		t.Fatalf("%v: %s", err, gatewayHint)
	}
	etc := map[string][]byte{
		"hosts":                     []byte("127.0.0.1 localhost envoy-gateway\n" + hostOf(serviceAddress) + " " + serviceName + "\n"),
		"statsd-exporter/conf.yaml": mapper, // of a ConfigMap that Envoy Gateway makes
	}
	w := &world{redis: servers.Redis(t), upstream: servers.Upstream(t)}
	w.plane = newPlane(t, w.redis, w.upstream, etc)
	w.service = newService(t, w.redis, root(t, etc, w.plane.certs(serviceCerts)))
	w.service.start()
	w.plane.start()
	servers.Eventually(t, "Envoy limits requests", func() bool { return w.send(t, request{route: "always", user: "ann"}) == http.StatusTooManyRequests })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last output of Envoy:\n%s", w.plane.envoyLog())
		}
	})
	return w
}

// request is one that a client sends through Envoy.
type request struct {
	route  string
	path   string // defaults to /
	method string // defaults to GET
	user   string // header x-user
	from   string // the client's address, defaults to 127.0.0.1
}

// clientTimeout is longer than anything that the tests let pass.
const clientTimeout = 20 * time.Second

// send returns the status of the answer, 0 if there was none.
func (w *world) send(t *testing.T, r request) int {
	t.Helper()
	dialer := &net.Dialer{}
	if r.from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(r.from)}
	}
	caller := &http.Client{Timeout: clientTimeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}}
	asked, err := http.NewRequestWithContext(t.Context(), r.method, "http://"+ingress+"/"+strings.TrimPrefix(r.path, "/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	asked.Host = r.route + ".example.com"
	if r.user != "" {
		asked.Header.Set("X-User", r.user)
	}
	status, _ := do(caller, asked)
	return status
}

// exactly asserts that a limit of n is left for a request.
func (w *world) exactly(t *testing.T, n int, r request) {
	t.Helper()
	for i := range n {
		if status := w.send(t, r); status != http.StatusOK {
			t.Fatalf("request %d of %d of %+v is answered %d, want 200", i+1, n, r, status)
		}
	}
	for range 2 {
		if status := w.send(t, r); status != http.StatusTooManyRequests {
			t.Fatalf("%+v is answered %d after %d requests, want 429", r, status, n)
		}
	}
}

// passes asserts that a request is not limited.
func (w *world) passes(t *testing.T, r request) {
	t.Helper()
	if status := w.send(t, r); status != http.StatusOK {
		t.Fatalf("%+v is answered %d, want 200", r, status)
	}
}

// apply writes a file of resources and waits until Envoy knows its routes, by a request that is none of those limited, and the rate limit
// service lists a rule whose key has all the parts.
func (w *world) apply(t *testing.T, name, resources string, unlimited request, parts ...string) {
	t.Helper()
	w.plane.write(name+".yaml", resources)
	t.Cleanup(func() { w.plane.remove(name + ".yaml") }) // the control plane's work on a change grows with what there is
	servers.Eventually(t, "Envoy has the routes of "+name, func() bool { return w.send(t, unlimited) == http.StatusOK })
	servers.Eventually(t, "the rate limit service has the rules of "+name, func() bool { return listed(t, parts...) })
}

// listed tells whether a rule in force has all the parts in its line.
func listed(t *testing.T, parts ...string) bool {
	t.Helper()
	_, text := get(t, rulesURL)
lines:
	for line := range strings.Lines(text) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		return true
	}
	return false
}

// within fails the test unless condition is so before the time is over, and tells how long it took.
func within(t *testing.T, bound time.Duration, what string, condition func() bool) {
	t.Helper()
	begin := time.Now()
	for !condition() {
		if time.Since(begin) > bound {
			t.Fatalf("not so after %v: %s", bound, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("figure: %s after %v", what, time.Since(begin).Round(time.Millisecond))
}

// get returns status 0 if there was no answer.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	asked, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(&http.Client{Timeout: clientTimeout}, asked)
}

func do(caller *http.Client, asked *http.Request) (status int, body string) {
	response, err := caller.Do(asked)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return 0, "canceled"
		}
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}
