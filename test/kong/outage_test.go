package kong_test

import (
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/test/kong"
	"github.com/weirhq/weir/test/servers"
)

const deadline = 300 * time.Millisecond

// slack is what a busy test machine may add to a deadline.
const slack = 2 * time.Second

// patient is a config of the sidecar with the deadline above.
func patient(server *sidecar, values map[string]any) map[string]any {
	all := server.config(values)
	grpc := maps.Clone(all["grpc"].(map[string]any))
	grpc["timeout"] = deadline.Milliseconds()
	all["grpc"] = grpc
	return all
}

// While the sidecar is killed and started again under load, no request waits, none gets a 500 of Kong's, and limits are back
// within a second.
func TestSidecarKilledUnderLoad(t *testing.T) {
	server := startSidecar(t)
	node := kong.Start(t, 4)
	config := configure(patient(server, map[string]any{"limit_by": "ip", "hour": 1}))
	strict := configure(patient(server, map[string]any{"limit_by": "ip", "hour": 1, "fault_tolerant": false, "fault_code": 503}))
	must(t, node.Workers[0], config, anyone(0)) // all others are over the limit
	must(t, node.Workers[0], strict, anyone(0))

	var stop, passed, faults atomic.Bool
	var longest atomic.Int64
	var tasks sync.WaitGroup
	for _, worker := range node.Workers {
		for i := range 8 {
			tasks.Go(func() {
				for !stop.Load() {
					mine := config
					if i%2 == 1 {
						mine = strict
					}
					begin := time.Now()
					response, err := worker.Access(mine, anyone(0))
					took := time.Since(begin)
					if err != nil {
						t.Error(err)
						return
					}
					response.Finish()
					for {
						before := longest.Load()
						if int64(took) <= before || longest.CompareAndSwap(before, int64(took)) {
							break
						}
					}
					switch {
					case i%2 == 0 && response.Status == 0:
						passed.Store(true)
					case i%2 == 1 && response.Status == 503:
						faults.Store(true)
					case response.Status != 429:
						t.Errorf("status %d", response.Status)
					}
				}
			})
		}
	}
	server.stop()
	servers.Eventually(t, "requests passing and failing as set", func() bool { return passed.Load() && faults.Load() })
	server.start()
	back := time.Now()
	servers.Eventually(t, "limits", func() bool { return must(t, node.Workers[0], config, anyone(0)).Denied() })
	if took := time.Since(back); took > time.Second+slack {
		t.Errorf("limits were back after %v, want 1 s", took)
	} else {
		figure(t, "sidecar killed under load and back: limits were back after %v", took.Round(time.Millisecond))
	}
	stop.Store(true)
	tasks.Wait()
	figure(t, "sidecar killed under load: slowest request %v, the deadline is %v", time.Duration(longest.Load()).Round(time.Millisecond), deadline)
	if took := time.Duration(longest.Load()); took > deadline+slack {
		t.Errorf("a request took %v, the deadline is %v", took, deadline)
	}
}

// A sidecar that takes connections and answers nothing costs the first requests their deadline, and then nothing.
func TestSidecarHangs(t *testing.T) {
	server := startSidecar(t)
	node := kong.Start(t, 1)
	config := configure(patient(server, map[string]any{"limit_by": "ip", "hour": 1}))
	must(t, node.Workers[0], config, anyone(0))
	server.pause()
	begin := time.Now()
	for range 50 {
		if response := must(t, node.Workers[0], config, anyone(0)); response.Denied() {
			t.Fatalf("status %d", response.Status)
		}
	}
	// 5 time out before the breaker opens, then one in each 250 ms at most.
	if took := time.Since(begin); took > 20*deadline {
		t.Errorf("50 requests took %v: they wait one by one", took)
	}
	server.resume()
	back := time.Now()
	await(t, func() bool { return must(t, node.Workers[0], config, anyone(0)).Denied() })
	if took := time.Since(back); took > time.Second+slack {
		t.Errorf("limits were back after %v", took)
	}
}

func TestFallbackLocal(t *testing.T) {
	server := startSidecar(t)
	node := kong.Start(t, 2)
	config := configure(patient(server, map[string]any{"limit_by": "ip", "hour": 20, "fallback": "local", "fallback_fraction": 0.5}))
	byRules := configure(patient(server, map[string]any{
		"fallback": "local", "rules_path": rulesFile(t),
		"descriptors": []any{map[string]any{"entries": []any{map[string]any{"key": "user", "source": "ip"}}}},
	}))
	must(t, node.Workers[0], config, anyone(0))
	server.stop()
	count := func(config *kong.Config) (passed int) {
		for i := range 40 {
			if !must(t, node.Workers[i%2], config, anyone(0)).Denied() {
				passed++
			}
		}
		return passed
	}
	if got := count(config); got != 10 {
		t.Errorf("%d passed while the sidecar was away, want half of 20", got)
	}
	if got := count(byRules); got != 2 {
		t.Errorf("%d passed by the rules, want 2", got)
	}
	server.start()
	await(t, func() bool { return !must(t, node.Workers[0], config, anyone(0)).Denied() })
}

// A server that was never there is no reason to wait either.
func TestSidecarNeverThere(t *testing.T) {
	node := kong.Start(t, 1)
	for name, grpc := range map[string]map[string]any{
		"nobody listens": {"host": "127.0.0.1", "port": servers.FreePort(t), "timeout": 1000},
		"no such name":   {"host": "weir.invalid", "port": 1, "timeout": 1000},
		"no such socket": {"socket": "/nowhere/weir.sock", "timeout": 1000},
	} {
		t.Run(name, func(t *testing.T) {
			config := configure(map[string]any{"mode": "grpc", "grpc": grpc, "limit_by": "ip", "hour": 1})
			begin := time.Now()
			if response := must(t, node.Workers[0], config, anyone(0)); response.Denied() {
				t.Errorf("status %d", response.Status)
			}
			if took := time.Since(begin); took > time.Second+slack {
				t.Errorf("took %v", took)
			}
		})
	}
}

// Embedded with a Redis: nodes share it, and while it hangs requests do as set.
func TestEmbeddedWithRedis(t *testing.T) {
	redis := servers.Redis(t)
	host, port, err := net.SplitHostPort(redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	with := func(values map[string]any) map[string]any {
		all := embedded(map[string]any{"limit_by": "ip", "hour": 5, "redis": map[string]any{"host": host, "port": number, "timeout": 200}})
		maps.Copy(all, values)
		return all
	}
	nodes := []*kong.Node{kong.Start(t, 2), kong.Start(t, 2)}
	config := configure(with(nil))
	passed := 0
	for i := range 20 {
		if !must(t, nodes[i%2].Workers[0], config, anyone(0)).Denied() {
			passed++
		}
	}
	if passed != 5 {
		t.Errorf("%d passed on two nodes, want 5", passed)
	}
	strict := configure(with(map[string]any{"fault_tolerant": false, "fault_code": 503}))
	local := configure(with(map[string]any{"fallback": "local", "fallback_fraction": 0.4}))
	redis.Pause()
	if response := must(t, nodes[0].Workers[0], config, anyone(0)); response.Denied() {
		t.Errorf("tolerant: status %d", response.Status)
	}
	if response := must(t, nodes[0].Workers[0], strict, anyone(0)); response.Status != 503 {
		t.Errorf("strict: status %d", response.Status)
	}
	passed = 0
	for range 8 {
		if !must(t, nodes[0].Workers[0], local, anyone(0)).Denied() {
			passed++
		}
	}
	if passed != 2 {
		t.Errorf("local: %d passed, want 2", passed)
	}
	redis.Resume()
	await(t, func() bool { return must(t, nodes[0].Workers[0], config, anyone(0)).Denied() })
}

// Identities and secrets stay out of the log, whatever happens.
func TestLogHoldsNoSecrets(t *testing.T) {
	node := kong.Start(t, 1, "-log-level", "debug")
	config := configure(embedded(map[string]any{
		"limit_by": "header", "header_name": "X-Key", "hour": 1,
		"redis": map[string]any{"host": "127.0.0.1", "port": servers.FreePort(t), "password": "s3cr3t-passw0rd"},
	}))
	faulty := configure(embedded(map[string]any{"redis": map[string]any{"host": "h", "password": []any{"s3cr3t-passw0rd"}}}))
	for range 3 {
		must(t, node.Workers[0], config, &kong.Request{IP: "192.0.2.1", Headers: map[string]string{"X-Key": "s3cr3t-key"}})
		must(t, node.Workers[0], faulty, anyone(0))
	}
	if log := node.Process().Log(); strings.Contains(log, "s3cr3t") || !strings.Contains(log, "cannot be used") {
		t.Errorf("the log:\n%s", log)
	}
}
