//go:build soak

package soak

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// replica is one weir process that can be restarted on its ports.
type replica struct {
	t         *testing.T
	binary    string
	rules     string
	redis     *servers.RedisServer
	grpc, web string // host:port
	process   *servers.Process
}

func newReplica(t *testing.T, rules string, redis *servers.RedisServer) *replica {
	t.Helper()
	return &replica{
		t: t, binary: filepath.Join(servers.Root(t), "bin", "weir"), rules: rules, redis: redis,
		grpc: servers.Address(servers.FreePort(t)), web: servers.Address(servers.FreePort(t)),
	}
}

// start returns once the replica is ready.
func (r *replica) start() {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.binary, "serve", "--config", os.DevNull, "--rules", r.rules, "--quiet")
	cmd.Env = append(os.Environ(), "WEIR_SERVER_HOST=127.0.0.1", "WEIR_SERVER_GRPC_PORT="+r.port(r.grpc), "WEIR_SERVER_FAST_PORT=0", "WEIR_SERVER_PORT="+r.port(r.web),
		"WEIR_REDIS_URL=redis://"+r.redis.Addr()+"/0", "WEIR_SERVER_GRPC_MAX_CONNECTION_AGE=5s",
		"WEIR_DATABASE_PATH="+filepath.Join(r.t.TempDir(), "weir.db"))
	r.process = servers.StartCommand(r.t, "weir on "+r.grpc, cmd)
	ready := r.process.Await(r.t, func() bool {
		body, ok := r.get("/readyz")
		return ok && body != ""
	})
	if !ready {
		r.t.Fatalf("weir ended while starting (%v); its output:\n%s", r.process.Err(), r.process.Log())
	}
}

// stop asks the replica to end, and waits until it has.
func (r *replica) stop() {
	r.t.Helper()
	r.process.Signal(os.Interrupt)
	if err := r.process.Err(); err != nil {
		r.t.Errorf("a replica that was asked to stop ended with: %v", err)
	}
}

// sample is what a replica says of itself.
type sample struct{ bytes, goroutines, reloads float64 }

func (r *replica) sample() sample {
	r.t.Helper()
	body, ok := r.get("/metrics")
	if !ok {
		r.t.Fatal("the replica that is left alone gives no metrics")
	}
	var s sample
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			continue
		}
		switch name, _, _ := strings.Cut(lines.Text()[:at], "{"); name {
		case "process_resident_memory_bytes":
			s.bytes = value
		case "go_goroutines":
			s.goroutines = value
		case "weir_rules_reloads_total":
			if strings.Contains(lines.Text(), `result="success"`) {
				s.reloads = value
			}
		}
	}
	return s
}

// least is the smallest of each: garbage that waits for its collection counts least.
func least(samples []sample) sample {
	smallest := samples[0]
	for _, s := range samples[1:] {
		smallest = sample{min(smallest.bytes, s.bytes), min(smallest.goroutines, s.goroutines), min(smallest.reloads, s.reloads)}
	}
	return smallest
}

// get reports false unless the answer is 200.
func (r *replica) get(path string) (string, bool) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.web+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", false
	}
	defer response.Body.Close()
	var body strings.Builder
	if _, err := bufio.NewReader(response.Body).WriteTo(&body); err != nil {
		return "", false
	}
	return body.String(), response.StatusCode == http.StatusOK
}

func (r *replica) port(address string) string {
	r.t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		r.t.Fatal(err)
	}
	return port
}
