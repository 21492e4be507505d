package kong_test

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/weirhq/weir/test/kong"
)

// The sidecar counts simple limits, so all nodes share them, over one connection of each process.
func TestNodesShareTheSidecar(t *testing.T) {
	server := startSidecar(t)
	nodes := []*kong.Node{kong.Start(t, 2), kong.Start(t, 2)}
	config := configure(server.config(map[string]any{"limit_by": "ip", "hour": 10}))
	other := configure(server.config(map[string]any{"limit_by": "route", "hour": 100}))
	passed := 0
	for i := range 40 {
		worker := nodes[i%2].Workers[i/2%2]
		if !must(t, worker, config, anyone(0)).Denied() {
			passed++
		}
		must(t, worker, other, &kong.Request{Route: "r"})
	}
	if passed != 10 {
		t.Errorf("%d passed, want 10", passed)
	}
	if n := server.conns.Load(); n != 2 {
		t.Errorf("%d connections from 2 processes with 2 workers and 2 configs each, want 2", n)
	}
}

// What travels: the domain, the identity, and each limit as the descriptor's own.
func TestRequestToTheSidecar(t *testing.T) {
	server := startSidecar(t)
	node := kong.Start(t, 1)
	config := configure(server.config(map[string]any{"limit_by": "header", "header_name": "X-User", "minute": 5, "month": 50, "request_id": true, "cost": 2}))
	response := must(t, node.Workers[0], config, &kong.Request{ID: "id-7", IP: "192.0.2.1", Headers: map[string]string{"x-user": "ann\xff"}})
	if got := response.Headers["X-RateLimit-Remaining-Minute"]; got != "3" {
		t.Errorf("%s left of 5 after a cost of 2", got)
	}
	got := server.lastRequest()
	if got.GetDomain() != "kong" || got.GetRequestId() != "id-7" || got.GetCost() != 2 || len(got.GetDescriptors()) != 2 {
		t.Fatalf("sent %v", got)
	}
	entries := got.GetDescriptors()[0].GetEntries()
	if len(entries) != 2 || entries[0].GetKey() != "plugin_route" || entries[1].GetKey() != "header.x-user" || entries[1].GetValue() != "ann%FF" {
		t.Errorf("entries %v", entries)
	}
	minute, month := got.GetDescriptors()[0].GetLimit(), got.GetDescriptors()[1].GetLimit()
	if minute.GetLimit() != 5 || minute.GetWindowMs() != 60_000 || minute.GetAlgorithm() != "fixed_window" || minute.GetCalendar() != "" {
		t.Errorf("limit of a minute: %v", minute)
	}
	if month.GetLimit() != 50 || month.GetCalendar() != "month" {
		t.Errorf("limit of a month: %v", month)
	}
}

func TestDescriptorsInTheSidecar(t *testing.T) {
	server := startSidecar(t)
	node := kong.Start(t, 1)
	entry := func(values map[string]any) []any {
		return []any{map[string]any{"entries": []any{values}}}
	}
	config := configure(server.config(map[string]any{"descriptors": entry(map[string]any{"key": "user", "source": "consumer", "field": "username", "default": "anonymous"})}))
	for user, want := range map[string][]int{"": {0, 0, 429}, "bob": {0, 0, 429}, "blocked": {429, 429, 429}} {
		for i, status := range want {
			response := must(t, node.Workers[0], config, &kong.Request{IP: "192.0.2.1", Consumer: user, Username: user})
			if response.Status != status {
				t.Errorf("user %q, request %d: status %d, want %d", user, i+1, response.Status, status)
			}
		}
	}
	if got := server.lastRequest(); got.GetDescriptors()[0].GetLimit() != nil {
		t.Errorf("a limit of its own was sent: %v", got)
	}
	// No rule is for these, and so nothing limits them: weir's default is for its own API. 150 are more than it would allow.
	free := configure(server.config(map[string]any{"descriptors": entry(map[string]any{"key": "tier", "source": "value", "value": "t"})}))
	elsewhere := configure(server.config(map[string]any{"domain": "elsewhere", "descriptors": entry(map[string]any{"key": "user", "source": "ip"})}))
	for range 150 {
		for _, config := range []*kong.Config{free, elsewhere} {
			if response := must(t, node.Workers[0], config, anyone(0)); response.Denied() || response.Headers["X-RateLimit-Limit"] != "" {
				t.Fatalf("without a rule: status %d, headers %v", response.Status, response.Headers)
			}
		}
	}
	quota := configure(server.config(map[string]any{"descriptors": entry(map[string]any{"key": "tenant", "source": "value", "value": "t"})}))
	must(t, node.Workers[0], quota, anyone(0))
	if response := must(t, node.Workers[0], quota, anyone(0)); response.Status != 402 {
		t.Errorf("a quota gave %d, want 402", response.Status)
	}
}

func TestRepeatedEventIsChargedOnceInTheSidecar(t *testing.T) {
	server := startSidecar(t)
	node := kong.Start(t, 1)
	config := configure(server.config(map[string]any{"limit_by": "ip", "hour": 10, "request_id": true}))
	response := must(t, node.Workers[0], config, &kong.Request{ID: "one", IP: "192.0.2.1", CutAt: 3})
	if response.Runs != 2 || response.Headers["X-RateLimit-Remaining"] != "9" {
		t.Errorf("%s left after %d runs, want 9 after 2", response.Headers["X-RateLimit-Remaining"], response.Runs)
	}
}

// 4 workers with 64 connections and a limit of 1,000 a minute: of 20,000 requests exactly 1,000 pass. In mode grpc the workers
// belong to two nodes, which share one weir.
func TestExactlyTheLimit(t *testing.T) {
	const requests, limit = 20_000, 1000
	remote := asks(t, startWeir(t).GRPC(), nil)
	remote["grpc"].(map[string]any)["timeout"] = 30_000 // 256 at once take a while on a busy machine
	for name, c := range map[string]struct {
		nodes []*kong.Node
		mode  map[string]any
	}{
		"grpc":     {[]*kong.Node{kong.Start(t, 2), kong.Start(t, 2)}, remote},
		"embedded": {[]*kong.Node{kong.Start(t, 4)}, embedded(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			c.mode["limit_by"], c.mode["minute"], c.mode["error_format"] = "ip", limit, "json"
			config := configure(c.mode)
			var mu sync.Mutex
			passed, denied := make(map[int64]int), make(map[int64]int) // by the minute
			var tasks sync.WaitGroup
			for _, node := range c.nodes {
				tasks.Go(func() {
					each(t, node, requests/len(c.nodes), 64, config, func(response *kong.Response) {
						mu.Lock()
						defer mu.Unlock()
						switch response.Status {
						case 0:
							passed[minuteOf(t, response)]++
						case 429:
							denied[minuteOf(t, response)]++
						default:
							t.Errorf("status %d", response.Status)
						}
					})
				})
			}
			tasks.Wait()
			full, all := 0, 0
			for minute, n := range denied {
				if all += n; passed[minute] != limit {
					t.Errorf("%d passed in a minute with denials, want %d", passed[minute], limit)
				}
				full++
			}
			for _, n := range passed {
				if all += n; n > limit {
					t.Errorf("%d passed in a minute, want at most %d", n, limit)
				}
			}
			if all != requests || full == 0 {
				t.Errorf("%d answers to %d requests, passed %v, denied %v", all, requests, passed, denied)
			}
			figure(t, "%s, 4 workers with 64 connections each, limit %d a minute: of %d requests %v passed", name, limit, all, slices.Collect(maps.Values(passed)))
		})
	}
}

// minuteOf is the minute by which a request was counted, as its reset tells.
func minuteOf(t *testing.T, response *kong.Response) int64 {
	reset, err := strconv.ParseInt(response.Headers["X-RateLimit-Reset"], 10, 64)
	if err != nil {
		t.Errorf("X-RateLimit-Reset: %v", err)
	}
	return (reset + 30) / 60 // a busy machine may tell it a little late
}
