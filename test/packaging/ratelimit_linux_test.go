package packaging

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// The image's /bin/ratelimit takes the place of envoyproxy/ratelimit: without arguments, by its environment, in a root folder that
// nobody may write to.
func TestRatelimit(t *testing.T) {
	root := layOut(t)
	rules := filepath.Join(root, "data", "ratelimit", "config")
	if err := os.MkdirAll(rules, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "domain: apis\ndescriptors: [{key: generic_key, rate_limit: {unit: hour, requests_per_unit: 1}}]\n"
	if err := os.WriteFile(filepath.Join(rules, "apis.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(rules, "apis.yaml"), 0o644); err != nil { //nolint:gosec // the image's user reads it
		t.Fatal(err)
	}
	web, grpc, debug := servers.Address(servers.FreePort(t)), servers.Address(servers.FreePort(t)), servers.Address(servers.FreePort(t))
	ratelimit := container{root: root, env: append(loadImage(t).env,
		"HOST=127.0.0.1", "PORT="+port(t, web), "GRPC_HOST=127.0.0.1", "GRPC_PORT="+port(t, grpc), "DEBUG_HOST=127.0.0.1", "DEBUG_PORT="+port(t, debug),
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "LOG_LEVEL=info",
		"WEIR_SERVER_DRAIN_DELAY=0s")}
	before := lock(t, root, nil)
	process := servers.StartCommand(t, "ratelimit", ratelimit.command(t.Context(), []string{"/bin/ratelimit"}))
	if !process.Await(t, func() bool { return status(t, "http://"+web+"/healthcheck", nil) == http.StatusOK }) {
		t.Fatalf("/bin/ratelimit ended while starting (%v); its output:\n%s", process.Err(), process.Log())
	}
	request := `{"domain": "apis", "descriptors": [{"entries": [{"key": "generic_key", "value": "x"}]}]}`
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if code, body := post(t, "http://"+web+"/json", request); code != want {
			t.Errorf("/json is answered %d, want %d: %s", code, want, body)
		}
	}
	process.Signal(syscall.SIGTERM)
	if err := process.Err(); err != nil {
		t.Errorf("after SIGTERM it ended with: %v", err)
	}
	if after := tree(t, root, nil); len(after) != len(before) {
		t.Errorf("it changed its root folder: %v, before %v", after, before)
	}
}
