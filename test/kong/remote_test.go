package kong_test

import (
	"maps"
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

// 4 workers with 64 connections and a limit of 1,000 a minute: of 20,000 requests exactly 1,000 pass.
func TestExactlyTheLimit(t *testing.T) {
	server := startSidecar(t)
	for name, mode := range map[string]map[string]any{
		"grpc":     server.config(nil),
		"embedded": {"mode": "embedded"},
	} {
		t.Run(name, func(t *testing.T) {
			node := kong.Start(t, 4)
			for range 5 {
				values := maps.Clone(mode)
				values["limit_by"], values["minute"], values["error_format"] = "ip", 1000, "json"
				config := configure(values)
				first := must(t, node.Workers[0], config, anyone(0))
				statuses := load(t, node, 20_000-1, 64, config, anyone)
				last := must(t, node.Workers[0], config, anyone(0))
				if last.Headers["X-RateLimit-Reset"] != first.Headers["X-RateLimit-Reset"] {
					continue // another minute has begun, with another 1,000
				}
				if got := statuses[0] + 1; got != 1000 {
					t.Errorf("%d passed, want 1000: %v", got, statuses)
				}
				if statuses[0]+statuses[429] != 20_000-1 {
					t.Errorf("statuses %v", statuses)
				}
				return
			}
			t.Fatal("no run stayed within a minute")
		})
	}
}
