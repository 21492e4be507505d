package dropin

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirhq/weir/test/servers"
)

// ratelimit is the real binary under the name ratelimit.
type ratelimit struct {
	t                *testing.T
	process          *servers.Process
	web, grpc, debug string // host:port
}

// start runs ratelimit with an environment that has nothing but these variables and free ports, until it answers.
func start(t *testing.T, environ ...string) *ratelimit {
	t.Helper()
	link := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(servers.WeirBinary(t), link); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s := &ratelimit{t: t, web: servers.Address(servers.FreePort(t)), grpc: servers.Address(servers.FreePort(t)), debug: servers.Address(servers.FreePort(t))}
		command := exec.Command(link) //nolint:noctx // the process's own cleanup ends it
		command.Dir = t.TempDir()
		command.Env = append([]string{
			"PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"),
			"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
			"PORT=" + portOf(s.web), "GRPC_PORT=" + portOf(s.grpc), "DEBUG_PORT=" + portOf(s.debug),
		}, environ...)
		s.process = servers.StartCommand(t, "ratelimit", command)
		if s.process.Await(t, func() bool { status, _ := s.get(s.web, "/healthcheck"); return status != 0 }) {
			return s
		}
		if !strings.Contains(s.process.Log(), "is taken by another process") {
			t.Fatalf("ratelimit ended: %v\n%s", s.process.Err(), s.process.Log())
		}
	}
	t.Fatal("no free ports")
	return nil
}

func portOf(address string) string {
	_, port, _ := strings.Cut(address, ":")
	return port
}

// get returns status 0 if there was no answer.
func (s *ratelimit) get(address, path string) (status int, body string) {
	return s.do(http.MethodGet, "http://"+address+path, "")
}

func (s *ratelimit) do(method, url, body string) (status int, text string) {
	request, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(read)
}

func (s *ratelimit) json(body string) (status int, text string) {
	return s.do(http.MethodPost, "http://"+s.web+"/json", body)
}

// dial connects to an address, in the clear unless options say otherwise.
func dial(t *testing.T, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	connection, err := grpc.NewClient(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// health is what gRPC health says of a service, UNKNOWN if it does not answer.
func health(t *testing.T, connection *grpc.ClientConn, service string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.StartTimeout)
	defer cancel()
	reply, err := healthpb.NewHealthClient(connection).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return healthpb.HealthCheckResponse_UNKNOWN
	}
	return reply.GetStatus()
}

// ask sends one descriptor, written as "k=v,k=v".
func ask(t *testing.T, connection *grpc.ClientConn, domain, descriptor string) (*rlsv3.RateLimitResponse, error) {
	t.Helper()
	entries := &commonv3.RateLimitDescriptor{}
	for entry := range strings.SplitSeq(descriptor, ",") {
		key, value, _ := strings.Cut(entry, "=")
		entries.Entries = append(entries.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	ctx, cancel := context.WithTimeout(t.Context(), servers.StartTimeout)
	defer cancel()
	return rlsv3.NewRateLimitServiceClient(connection).ShouldRateLimit(ctx,
		&rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*commonv3.RateLimitDescriptor{entries}})
}

func allowed(t *testing.T, connection *grpc.ClientConn, domain, descriptor string) bool {
	t.Helper()
	reply, err := ask(t, connection, domain, descriptor)
	if err != nil {
		t.Fatalf("ShouldRateLimit: %v", err)
	}
	return reply.GetOverallCode() == rlsv3.RateLimitResponse_OK
}

// rulesText is a domain whose generic_key has a limit by the hour.
func rulesText(domain string, limit int) string {
	return "domain: " + domain + "\ndescriptors:\n  - key: generic_key\n    rate_limit: {unit: hour, requests_per_unit: " + strconv.Itoa(limit) + "}\n"
}

// runtime writes rules to ROOT/ratelimit/config and returns ROOT.
func runtime(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	writeRules(t, filepath.Join(root, "ratelimit", "config"), text)
	return root
}

func writeRules(t *testing.T, folder, text string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// swap makes the link at path lead to target in one step.
func swap(t *testing.T, path, target string) {
	t.Helper()
	if err := os.Symlink(target, path+".next"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
}
