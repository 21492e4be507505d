package kong_test

import (
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir/test/kong"
	"github.com/weirhq/weir/test/servers"
)

// embedded is a config of mode embedded with further settings.
func embedded(values map[string]any) map[string]any {
	all := map[string]any{"mode": "embedded"}
	maps.Copy(all, values)
	return all
}

// must runs the access phase, ends the request, and fails the test where a client would get a 500 from Kong.
func must(t *testing.T, worker *kong.Worker, config *kong.Config, request *kong.Request) *kong.Response {
	t.Helper()
	response, err := worker.Access(config, request)
	if err != nil {
		t.Fatal(err)
	}
	response.Finish()
	return response
}

// each sends n requests of anyone through all workers, conns at a time through each, and gives the answers to use, from many
// goroutines at once.
func each(t *testing.T, node *kong.Node, n, conns int, config *kong.Config, use func(*kong.Response)) {
	t.Helper()
	var next atomic.Int64
	var tasks sync.WaitGroup
	for _, worker := range node.Workers {
		for range conns {
			tasks.Go(func() {
				for i := next.Add(1); i <= int64(n); i = next.Add(1) {
					response, err := worker.Access(config, anyone(int(i)))
					if err != nil {
						t.Error(err)
						return
					}
					response.Finish()
					use(response)
				}
			})
		}
	}
	tasks.Wait()
}

func anyone(int) *kong.Request { return &kong.Request{IP: "192.0.2.1"} }

var configs atomic.Int64

// configure returns a config of its own, whose counters no other test's has.
func configure(values map[string]any) *kong.Config {
	id := fmt.Sprintf("plugin-%d", configs.Add(1))
	config := kong.Configure(id, values)
	config.Route = "route-of-" + id
	return config
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mustWrite replaces a file the way an editor does.
func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	servers.Eventually(t, t.Name(), condition)
}
