package servers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const envoyHint = "run `make test-setup`, or point ENVOY_BIN at an Envoy of 1.40 or newer"

// AliceToken is a JWT of subject "alice" that the key in the shipped bootstrap accepts.
const AliceToken = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImRlbW8ifQ.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLmNvbSIsInN1YiI6ImFsaWNlIn0." +
	"XoJzeZfAN8bhmp2Rg1JtsdiFZb3SVaSY08scEfvPbvQea7oa1JffPZ3CE_XXAhYFwAEOxxn1IsurEb0JWyvXEw"

// BobToken is like AliceToken, of subject "bob".
const BobToken = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImRlbW8ifQ.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLmNvbSIsInN1YiI6ImJvYiJ9." +
	"hWUuQQobqjHIEp67LOd6JUKM4mnXqGQbCj6p9a9PzKsdSjANhjLMiqtFEGf5ROX25j1eY6kU8V-hrv8E3CcSAQ"

// EnvoyOptions says how a real Envoy is started.
type EnvoyOptions struct {
	// Bootstrap is a path below the module's root. Defaults to envoy/bootstrap.yaml, the one that weir ships.
	Bootstrap string
	// Clusters gives each cluster of the bootstrap the addresses (host:port) of its endpoints. All clusters must be named,
	// so that no test looks for the hosts of the file; the shipped bootstrap has "ratelimit" and "echo". A cluster without
	// addresses has nobody to call.
	Clusters map[string][]string
	// Concurrency is the number of worker threads. Defaults to 2. Each has connections of its own.
	Concurrency int
	// Edit, if set, changes the bootstrap further, as decoded from YAML, after clusters and ports have been replaced.
	Edit func(bootstrap map[string]any)
}

// EnvoyServer is a real Envoy that lives as long as its test. Its listeners are on free ports of the loopback interface.
type EnvoyServer struct {
	t         testing.TB
	process   *Process
	admin     string            // host:port
	listeners map[string]string // name to host:port
	client    *http.Client      // of the admin interface
}

// Envoy starts a real Envoy and returns once all its workers listen.
func Envoy(t testing.TB, options EnvoyOptions) *EnvoyServer {
	t.Helper()
	if options.Bootstrap == "" {
		options.Bootstrap = filepath.Join("envoy", "bootstrap.yaml")
	}
	if options.Concurrency == 0 {
		options.Concurrency = 2
	}
	bootstrap := readBootstrap(t, filepath.Join(Root(t), options.Bootstrap))
	rewrite(t, bootstrap, options.Clusters)
	if options.Edit != nil {
		options.Edit(bootstrap)
	}
	encoded, err := json.MarshalIndent(bootstrap, "", "  ")
	if err != nil {
		t.Fatalf("encode %s: %v", options.Bootstrap, err)
	}
	dir := t.TempDir()
	adminFile := filepath.Join(dir, "admin")
	s := &EnvoyServer{t: t, client: &http.Client{Timeout: StartTimeout}}
	t.Cleanup(s.client.CloseIdleConnections)
	s.process = Start(t, "envoy", FindEnvoy(t),
		"--config-path", writeFile(t, dir, "bootstrap.json", encoded),
		"--admin-address-path", adminFile,
		"--concurrency", strconv.Itoa(options.Concurrency),
		"--log-level", "warn",
		"--disable-hot-restart", // else every Envoy of this machine wants the same shared memory
	)
	live := s.process.Await(t, func() bool {
		address, err := os.ReadFile(adminFile)
		if err != nil || len(address) == 0 {
			return false
		}
		s.admin = string(address)
		body, err := s.request(http.MethodGet, "/ready")
		return err == nil && strings.TrimSpace(body) == "LIVE"
	})
	if !live {
		t.Fatalf("envoy ended while starting (%v); its output:\n%s", s.process.Err(), s.process.Log())
	}
	s.listeners = s.findListeners()
	return s
}

// FindEnvoy returns the path of the Envoy that tests use: $ENVOY_BIN, else the one that `make test-setup` installs, else
// the one on PATH. If there is none the test fails with the way to install it.
func FindEnvoy(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("ENVOY_BIN"); path != "" {
		return path
	}
	if path := filepath.Join(Root(t), "build", "venv", "bin", "envoy"); isFile(path) {
		return path
	}
	return Find(t, "envoy", envoyHint)
}

// ValidateEnvoy asks a real Envoy whether it would accept a bootstrap file.
func ValidateEnvoy(t testing.TB, path string) error {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), FindEnvoy(t),
		"--mode", "validate", "--log-level", "warn", "--config-path", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("envoy refuses %s: %w: %s", path, err, output)
	}
	return nil
}

// URL is where the listener of this name is reached, without a path: http://127.0.0.1:PORT.
func (s *EnvoyServer) URL(listener string) string {
	s.t.Helper()
	return "http://" + s.Addr(listener)
}

// Addr is the host:port of the listener of this name.
func (s *EnvoyServer) Addr(listener string) string {
	s.t.Helper()
	address, ok := s.listeners[listener]
	if !ok {
		s.t.Fatalf("envoy has no listener %q, only %v", listener, slices.Sorted(maps.Keys(s.listeners)))
	}
	return address
}

// AdminAddr is the host:port of the admin interface.
func (s *EnvoyServer) AdminAddr() string { return s.admin }

// Process is Envoy's process.
func (s *EnvoyServer) Process() *Process { return s.process }

// Admin sends a request to the admin interface and returns the body of its answer. Envoy changes things by POST only.
func (s *EnvoyServer) Admin(method, path string) string {
	s.t.Helper()
	body, err := s.request(method, path)
	if err != nil {
		s.t.Fatal(err)
	}
	return body
}

// Stats returns all counters and gauges whose names begin with prefix.
func (s *EnvoyServer) Stats(prefix string) map[string]int64 {
	s.t.Helper()
	stats := map[string]int64{}
	lines := bufio.NewScanner(strings.NewReader(s.Admin(http.MethodGet, "/stats")))
	for lines.Scan() {
		name, text, found := strings.Cut(lines.Text(), ": ")
		if !found || !strings.HasPrefix(name, prefix) {
			continue
		}
		if value, err := strconv.ParseInt(text, 10, 64); err == nil { // histograms and texts are not numbers
			stats[name] = value
		}
	}
	if err := lines.Err(); err != nil {
		s.t.Fatalf("read envoy's stats: %v", err)
	}
	return stats
}

// Stat returns one counter or gauge, for example "cluster.ratelimit.ratelimit.over_limit". One that Envoy has not used yet
// is 0.
func (s *EnvoyServer) Stat(name string) int64 {
	s.t.Helper()
	return s.Stats(name)[name]
}

// AwaitHealthy waits until exactly n endpoints of a cluster are healthy.
func (s *EnvoyServer) AwaitHealthy(cluster string, n int) {
	s.t.Helper()
	gauge := "cluster." + cluster + ".membership_healthy"
	Eventually(s.t, fmt.Sprintf("envoy's %s is %d", gauge, n), func() bool { return s.Stat(gauge) == int64(n) })
}

// request is Admin for those who handle the error.
func (s *EnvoyServer) request(method, path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.admin+path, nil)
	if err != nil {
		return "", fmt.Errorf("envoy's admin interface: %w", err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return "", fmt.Errorf("envoy's admin interface: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("envoy's admin interface: %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("envoy's admin interface: %s %s: %s: %s", method, path, response.Status, body)
	}
	return string(body), nil
}

// findListeners asks where the listeners are, since each got a free port.
func (s *EnvoyServer) findListeners() map[string]string {
	s.t.Helper()
	var reply struct {
		Statuses []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Host string `json:"address"`
					Port int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(s.Admin(http.MethodGet, "/listeners?format=json")), &reply); err != nil {
		s.t.Fatalf("read envoy's listeners: %v", err)
	}
	listeners := make(map[string]string, len(reply.Statuses))
	for _, status := range reply.Statuses {
		socket := status.Address.Socket
		listeners[status.Name] = net.JoinHostPort(socket.Host, strconv.Itoa(socket.Port))
	}
	return listeners
}
