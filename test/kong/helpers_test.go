package kong_test

import (
	"bufio"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
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

// figure logs something that was measured; make figures shows it.
func figure(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("figure: "+format, args...)
}

// scrape returns the plugin's metrics without labels by their names, those with labels by name{...}.
func scrape(t *testing.T, address string) map[string]float64 {
	t.Helper()
	metrics := tryScrape(t, address)
	if metrics == nil {
		t.Fatalf("nobody serves metrics at %s", address)
	}
	return metrics
}

// tryScrape is scrape, and nil if nobody answers.
func tryScrape(t *testing.T, address string) map[string]float64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // so that the scrape leaves no connection
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	metrics := make(map[string]float64)
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); ok && err == nil {
			metrics[name] = value
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return metrics
}

// runToEnd runs the plugin with arguments with which it ends by itself, and returns what it said.
func runToEnd(t *testing.T, args ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), kong.Binary(t), args...).CombinedOutput()
	if err == nil {
		t.Errorf("%v is no error", args)
	}
	return string(output)
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	servers.Eventually(t, t.Name(), condition)
}
