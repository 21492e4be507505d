//go:build soak

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/test/servers"
)

const (
	defaultTime  = time.Minute
	workers      = 8
	pause        = 15 * time.Millisecond // of a worker between two requests: about 500 requests a second in all
	reloadEvery  = 3 * time.Second
	restartEvery = 15 * time.Second
	sampleEvery  = time.Second

	limit  = 100
	window = 10 * time.Second

	// What the replica that is never restarted may gain between the end of its first third and the end.
	maxGrowth     = 0.3
	maxGrowthMiB  = 16
	maxGoroutines = 64
)

// rules has one key whose answers are counted, and one that has a new value in each request.
const rules = `
domain: edge
descriptors:
  - key: api_key
    value: counted
    limits: [{algorithm: fixed_window, limit: %d, window: %v}]
  - key: api_key
    limits: [{limit: 5, window: 1s}]
  - key: remote_address
    limits: [{algorithm: sliding_window, limit: 1000000, window: 60s}]
# version %d of this file
`

func TestSoak(t *testing.T) {
	length := defaultTime
	if text := os.Getenv("SOAK_TIME"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SOAK_TIME: %v: write 30s or 2h", err)
		}
	}
	dir := t.TempDir()
	writeRules(t, dir, 0)
	redis, upstream := servers.Redis(t), servers.Upstream(t)
	steady, restarted := newReplica(t, dir, redis), newReplica(t, dir, redis)
	steady.start()
	restarted.start()
	envoy := servers.Envoy(t, servers.EnvoyOptions{Clusters: map[string][]string{
		"ratelimit": {steady.grpc, restarted.grpc}, "echo": {upstream.Addr()},
	}})
	envoy.AwaitHealthy("ratelimit", 2)

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	begin := time.Now()
	var load load
	var running sync.WaitGroup
	for n := range workers {
		url := envoy.URL([]string{"ingress", "ingress-2"}[n%2])
		running.Go(func() { load.run(ctx, url) })
	}
	samples := disturb(ctx, t, dir, steady, restarted)
	running.Wait()
	elapsed := time.Since(begin)

	t.Logf("%d requests in %v: %d passed, %d denied, %d of the counted key passed",
		load.passed.Load()+load.denied.Load(), elapsed.Round(time.Second), load.passed.Load(), load.denied.Load(), load.counted.Load())
	for _, fault := range load.faults() {
		t.Errorf("a request was not answered 200 or 429: %s", fault)
	}
	if load.denied.Load() == 0 {
		t.Error("nothing was denied: the load does not reach the limits")
	}
	windows := int64(elapsed/window) + 2 // the first and the last one are seldom whole
	if counted := load.counted.Load(); counted > windows*limit {
		t.Errorf("%d requests of the counted key passed in %d windows of %d", counted, windows, limit)
	}
	for name, value := range envoy.Stats("cluster.echo.ratelimit.") {
		if value != 0 && (name == "cluster.echo.ratelimit.error" || name == "cluster.echo.ratelimit.failure_mode_allowed") {
			t.Errorf("%s is %d, want 0: calls failed although one replica was always there", name, value)
		}
	}
	checkGrowth(t, samples)
}

// load is what the workers send and are answered.
type load struct {
	passed, denied, counted atomic.Int64

	mu     sync.Mutex
	others map[string]int
}

func (l *load) run(ctx context.Context, url string) {
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for tick := time.NewTicker(pause); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		// The request is finished even if the time is up meanwhile.
		l.send(context.WithoutCancel(ctx), client, url)
	}
}

func (l *load) send(ctx context.Context, client *http.Client, url string) {
	key := "counted"
	if rand.IntN(2) == 0 {
		key = fmt.Sprintf("key-%d", rand.IntN(1_000_000))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		l.fault(err.Error())
		return
	}
	request.Header.Set("X-Api-Key", key)
	response, err := client.Do(request)
	if err != nil {
		l.fault(err.Error())
		return
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		l.passed.Add(1)
		if key == "counted" {
			l.counted.Add(1)
		}
	case http.StatusTooManyRequests:
		l.denied.Add(1)
	default:
		l.fault(response.Status)
	}
}

func (l *load) fault(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.others == nil {
		l.others = map[string]int{}
	}
	l.others[what]++
}

func (l *load) faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var faults []string
	for what, times := range l.others {
		faults = append(faults, fmt.Sprintf("%s (%d times)", what, times))
	}
	return faults
}

// disturb reloads and restarts until the time is up, and watches the replica that is left alone.
func disturb(ctx context.Context, t *testing.T, dir string, steady, restarted *replica) []sample {
	t.Helper()
	reload, restart, watch := time.NewTicker(reloadEvery), time.NewTicker(restartEvery), time.NewTicker(sampleEvery)
	defer reload.Stop()
	defer restart.Stop()
	defer watch.Stop()
	var samples []sample
	for version := 1; ; {
		select {
		case <-ctx.Done():
			return samples
		case <-reload.C:
			writeRules(t, dir, version)
			version++
		case <-restart.C:
			restarted.stop()
			restarted.start()
		case <-watch.C:
			samples = append(samples, steady.sample())
		}
	}
}

// writeRules replaces the rule file by rename, as an editor does.
func writeRules(t *testing.T, dir string, version int) {
	t.Helper()
	path := filepath.Join(dir, "edge.yaml")
	if err := os.WriteFile(path+".new", fmt.Appendf(nil, rules, limit, window, version), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// checkGrowth compares the samples at the end of the first third with those at the end.
func checkGrowth(t *testing.T, samples []sample) {
	t.Helper()
	if len(samples) < 9 {
		t.Fatalf("only %d samples of memory: let the test run for longer", len(samples))
	}
	early, late := least(samples[len(samples)/3-2:len(samples)/3+1]), least(samples[len(samples)-3:])
	t.Logf("memory: %.1f MiB after a third, %.1f MiB at the end; goroutines: %.0f and %.0f",
		early.bytes/(1<<20), late.bytes/(1<<20), early.goroutines, late.goroutines)
	if growth := late.bytes - early.bytes; growth > maxGrowth*early.bytes && growth > maxGrowthMiB<<20 {
		t.Errorf("memory grew by %.1f MiB", growth/(1<<20))
	}
	if late.goroutines > early.goroutines+maxGoroutines {
		t.Errorf("goroutines grew from %.0f to %.0f", early.goroutines, late.goroutines)
	}
	if late.reloads == early.reloads {
		t.Error("no rules were loaded while the test ran")
	}
}
