package rollingswap

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// kind is one of the two rate limit services, by its binary.
type kind struct {
	name, binary string
}

// kinds are envoyproxy/ratelimit and weir under its name.
func kinds(t *testing.T) (theirs, ours kind) {
	t.Helper()
	theirs = kind{"envoyproxy/ratelimit", filepath.Join(servers.Root(t), "build", "peers", "ratelimit")}
	if _, err := os.Stat(theirs.binary); err != nil {
		t.Fatalf("%v: run `make test-setup`", err)
	}
	ours = kind{"weir", filepath.Join(t.TempDir(), "ratelimit")}
	if err := os.Symlink(servers.WeirBinary(t), ours.binary); err != nil {
		t.Fatal(err)
	}
	return theirs, ours
}

// replica is one process of a rate limit service.
type replica struct {
	kind    kind
	process *servers.Process
	grpc    string // host:port
}

// run starts a replica with the environment that both kinds understand, and returns once it is healthy.
func run(t *testing.T, k kind, redis *servers.RedisServer, root string) *replica {
	t.Helper()
	for range 5 {
		web, grpc, debug := servers.FreePort(t), servers.FreePort(t), servers.FreePort(t)
		command := exec.Command(k.binary) //nolint:noctx // its process's cleanup ends it
		command.Dir = t.TempDir()
		command.Env = []string{
			"PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"),
			"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
			"PORT=" + strconv.Itoa(web), "GRPC_PORT=" + strconv.Itoa(grpc), "DEBUG_PORT=" + strconv.Itoa(debug),
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(), "USE_STATSD=false", "LOG_LEVEL=warn",
			"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
			"WEIR_REDIS_TIMEOUT_MS=20000", // the machine may be busy, and a request that passes undecided would be one too many
			"WEIR_SERVER_DRAIN_DELAY=0s",  // its endpoint is gone before it is asked to end
		}
		r := &replica{kind: k, grpc: servers.Address(grpc), process: servers.StartCommand(t, k.name, command)}
		if r.process.Await(t, func() bool { return healthy(t, "http://"+servers.Address(web)+"/healthcheck") }) {
			return r
		}
		if log := r.process.Log(); !strings.Contains(log, "in use") && !strings.Contains(log, "is taken by another process") {
			t.Fatalf("%s ended while starting: %v\n%s", k.name, r.process.Err(), log)
		}
	}
	t.Fatalf("%s found no free ports", k.name)
	return nil
}

// stop ends the replica as an orchestrator does.
func (r *replica) stop(t *testing.T) {
	t.Helper()
	r.process.Signal(syscall.SIGTERM)
	servers.Eventually(t, r.kind.name+" ends", func() bool { return !r.process.Running() })
}

func healthy(t *testing.T, url string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
