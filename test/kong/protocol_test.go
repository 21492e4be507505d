package kong_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir/test/kong"
	"github.com/weirhq/weir/test/servers"
)

// fds is how many files a process has open.
func fds(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Every nginx worker has an instance of its own of each config, and all of them count together.
func TestWorkersShareCounters(t *testing.T) {
	node := kong.Start(t, 4)
	config := configure(embedded(map[string]any{"limit_by": "ip", "hour": 10}))
	passed := 0
	for i := range 40 {
		if !must(t, node.Workers[i%4], config, anyone(0)).Denied() {
			passed++
		}
	}
	if passed != 10 {
		t.Errorf("%d passed, want 10", passed)
	}
}

// A config that is replaced keeps the counters of what it still limits; a client is never counted by neither or answered 500.
func TestConfigsChangeUnderLoad(t *testing.T) {
	node := kong.Start(t, 4)
	route := configure(nil)
	var current atomic.Pointer[kong.Config]
	swap := func(i int) {
		next := kong.Configure(route.ID, embedded(map[string]any{"limit_by": "ip", "day": 50, "error_message": fmt.Sprintf("version %d", i)}))
		next.Route = route.Route
		current.Store(next)
	}
	swap(0)
	var passed atomic.Int64
	var tasks sync.WaitGroup
	for _, worker := range node.Workers {
		for range 8 {
			tasks.Go(func() {
				for range 50 {
					response, err := worker.Access(current.Load(), anyone(0))
					if err != nil {
						t.Error(err)
						return
					}
					response.Finish()
					if !response.Denied() {
						passed.Add(1)
					}
				}
			})
		}
	}
	for i := range 50 {
		swap(i + 1)
	}
	tasks.Wait()
	if got := passed.Load(); got != 50 {
		t.Errorf("%d passed, want 50 whatever the config's version", got)
	}
}

// When the last instance closes, what it shared is let go: memory counters begin anew.
func TestLastInstanceLetsGo(t *testing.T) {
	address := servers.Address(servers.FreePort(t))
	node := kong.Start(t, 2, "-metrics", address)
	config := configure(embedded(map[string]any{"limit_by": "ip", "hour": 1}))
	for _, worker := range node.Workers {
		must(t, worker, config, anyone(0))
	}
	if err := node.Workers[0].CloseInstance(config); err != nil {
		t.Fatal(err)
	}
	if !must(t, node.Workers[0], config, anyone(0)).Denied() {
		t.Error("the counters were lost while an instance was open")
	}
	for _, worker := range node.Workers {
		if err := worker.CloseInstance(config); err != nil {
			t.Fatal(err)
		}
	}
	// Once the process has seen that the last denial's connection is closed, too.
	await(t, func() bool { return scrape(t, address)["weir_kong_engines"] == 0 })
	if must(t, node.Workers[0], config, anyone(0)).Denied() {
		t.Error("the counters are there after the last instance was closed")
	}
}

// Kong runs an event again whose connection breaks in the middle. With its request id the client is charged once.
func TestRepeatedEventIsChargedOnce(t *testing.T) {
	node := kong.Start(t, 1)
	for name, c := range map[string]struct {
		id   bool
		want string
	}{"with request_id": {true, "9"}, "without": {false, "8"}} {
		t.Run(name, func(t *testing.T) {
			config := configure(embedded(map[string]any{"limit_by": "ip", "hour": 10, "request_id": c.id}))
			request := &kong.Request{ID: "one-" + name, IP: "192.0.2.1", CutAt: 2}
			if c.id {
				request.CutAt = 3 // before it are the address and the id; it is the answer that is lost
			}
			response := must(t, node.Workers[0], config, request)
			if response.Runs != 2 {
				t.Fatalf("the event was run %d times", response.Runs)
			}
			if got := response.Headers["X-RateLimit-Remaining"]; got != c.want {
				t.Errorf("%s left, want %s", got, c.want)
			}
		})
	}
}

func TestCutAtEachCall(t *testing.T) {
	node := kong.Start(t, 1)
	config := configure(embedded(map[string]any{"limit_by": "consumer", "hour": 1, "request_id": true}))
	must(t, node.Workers[0], config, &kong.Request{ID: "first", IP: "192.0.2.1"})
	for cut := 1; cut <= 5; cut++ {
		request := &kong.Request{ID: fmt.Sprintf("cut-%d", cut), IP: "192.0.2.1", CutAt: cut}
		if response := must(t, node.Workers[0], config, request); !response.Denied() || response.Runs != 2 {
			t.Errorf("cut at call %d: status %d after %d runs", cut, response.Status, response.Runs)
		}
	}
}

// Kong closes the connection of an exit at the end of the request, which a slow client delays. What 1,000 denials at once take is
// given back when they end, each time anew.
func TestManyDenialsAtOnce(t *testing.T) {
	const denials, rounds = 1000, 5
	address := servers.Address(servers.FreePort(t))
	node := kong.Start(t, 4, "-metrics", address)
	config := configure(embedded(map[string]any{"limit_by": "ip", "hour": 1, "error_format": "json"}))
	for _, worker := range node.Workers {
		must(t, worker, config, anyone(0))
	}
	state := func() use {
		metrics := scrape(t, address)
		return use{
			conns: metrics["weir_kong_connections"], goroutines: metrics["go_goroutines"],
			files: fds(t, node.Process().PID()), rss: metrics["process_resident_memory_bytes"], heap: metrics["go_memstats_heap_alloc_bytes"],
		}
	}
	before := state()
	var most, first use
	for round := range rounds + 1 {
		responses := denyAtOnce(t, node, denials, config)
		peak := state()
		if peak.conns < denials {
			t.Errorf("%v connections are open during %d denials", peak.conns, denials)
		}
		for _, response := range responses {
			response.Finish()
		}
		for _, worker := range node.Workers {
			worker.Close() // its pool
		}
		servers.Eventually(t, "all is given back", func() bool {
			now := state()
			return now.conns == 0 && now.files <= before.files && now.goroutines <= before.goroutines && now.heap <= before.heap+maxGrowth
		})
		if after := state(); round == 0 {
			most, first = peak, after
		} else if round == rounds && after.rss > first.rss+2*maxGrowth && !kong.RaceEnabled {
			t.Errorf("the process has %.1f MiB after %d rounds, %.1f after the first", after.rss/(1<<20), rounds+1, first.rss/(1<<20))
		}
	}
	last := state()
	figure(t, "%d denials at once: %v goroutines, %.1f MiB, %d files; before them %v, %.1f, %d; after %d rounds %v, %.1f, %d; %v connections left", denials,
		most.goroutines, most.rss/(1<<20), most.files, before.goroutines, before.rss/(1<<20), before.files,
		rounds+1, last.goroutines, last.rss/(1<<20), last.files, last.conns)
	must(t, node.Workers[0], config, anyone(0))
}

// maxGrowth is what the heap may have more after thousands of denials than before, in bytes: garbage not yet collected.
const maxGrowth = 4 << 20

// use is what a process holds.
type use struct {
	conns, goroutines, rss, heap float64
	files                        int
}

// denyAtOnce returns the answers to n requests that are denied, before any of them has ended.
func denyAtOnce(t *testing.T, node *kong.Node, n int, config *kong.Config) []*kong.Response {
	t.Helper()
	responses := make([]*kong.Response, n)
	var tasks sync.WaitGroup
	for i := range responses {
		tasks.Go(func() {
			var err error
			if responses[i], err = node.Workers[i%len(node.Workers)].Access(config, anyone(0)); err != nil {
				t.Error(err)
			}
		})
	}
	tasks.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, response := range responses {
		if !response.Denied() {
			t.Fatal("a request passed")
		}
	}
	return responses
}

// `kong reload` starts a new process while the old one still serves.
func TestReloadTakesTheSocketOver(t *testing.T) {
	node := kong.Start(t, 1)
	config := configure(embedded(map[string]any{"limit_by": "ip", "hour": 5}))
	must(t, node.Workers[0], config, anyone(0))
	old := node.Spawn()
	must(t, node.Workers[0], config, anyone(0)) // on the connection to the old process
	old.Stop()
	if err := old.Err(); err != nil {
		t.Errorf("the old process ended with %v", err)
	}
	node.Workers[0].Close()
	if response := must(t, node.Workers[0], config, anyone(0)); response.Denied() {
		t.Error("the new process denies")
	}
	if _, err := os.Stat(node.Socket()); err != nil {
		t.Errorf("the old process took the socket along: %v", err)
	}
}

// A process that is killed is started again by Kong; its workers' instances are unknown to the new one.
func TestProcessIsKilled(t *testing.T) {
	node := kong.Start(t, 2)
	config := configure(embedded(map[string]any{"limit_by": "ip", "hour": 5}))
	for _, worker := range node.Workers {
		must(t, worker, config, anyone(0))
	}
	node.Process().Kill()
	for _, worker := range node.Workers {
		worker.Close()
	}
	node.Spawn()
	for _, worker := range node.Workers {
		must(t, worker, config, anyone(0))
	}
}
