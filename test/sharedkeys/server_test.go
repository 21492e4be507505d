package sharedkeys

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirhq/weir/test/servers"
)

// answerTimeout is generous, because test machines are busy.
const answerTimeout = 20 * time.Second

// reference is the path of envoyproxy/ratelimit.
func reference(t testing.TB) string {
	t.Helper()
	return filepath.Join(servers.Root(t), "build", "peers", "ratelimit")
}

// candidate is weir under the name of the binary that it replaces.
func candidate(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(servers.WeirBinary(t), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// replica is a rate limit service that was started by nothing but its environment.
type replica struct {
	name string
	rls  rlsv3.RateLimitServiceClient
}

// start runs a replica with rules; env are further variables.
func start(t *testing.T, name, path, rules string, env ...string) *replica {
	t.Helper()
	for range 5 {
		root := t.TempDir()
		folder := filepath.Join(root, "ratelimit", "config")
		if err := os.MkdirAll(folder, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		httpPort, grpcPort := servers.FreePort(t), servers.FreePort(t)
		command := exec.Command(path) //nolint:noctx // the process's own cleanup ends it
		command.Dir = t.TempDir()
		command.Env = append(os.Environ(),
			"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
			"PORT="+strconv.Itoa(httpPort), "GRPC_PORT="+strconv.Itoa(grpcPort), "DEBUG_PORT="+strconv.Itoa(servers.FreePort(t)),
			"RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
			"REDIS_SOCKET_TYPE=tcp", "USE_STATSD=false", "LOG_LEVEL=warn", "WEIR_REDIS_TIMEOUT_MS=20000")
		command.Env = append(command.Env, env...)
		process := servers.StartCommand(t, name, command)
		if !process.Await(t, func() bool { return healthy(servers.Address(httpPort)) }) {
			continue // a port was taken meanwhile
		}
		connection, err := grpc.NewClient(servers.Address(grpcPort), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		return &replica{name, rlsv3.NewRateLimitServiceClient(connection)}
	}
	t.Fatalf("%s did not start", name)
	return nil
}

func healthy(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthcheck", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// ask returns the answer; a call that fails fails the test.
func (r *replica) ask(t *testing.T, request *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
	defer cancel()
	response, err := r.rls.ShouldRateLimit(ctx, request)
	if err != nil {
		t.Errorf("%s: %v", r.name, err)
		return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OVER_LIMIT}
	}
	return response
}
