package servers

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// WeirOptions says how a weir server is started. The zero value serves no valid rules, with counters in memory.
type WeirOptions struct {
	// Rules are rule files by their name, written to a folder of the server's own. RulesPath, if set, is used instead.
	Rules     map[string]string
	RulesPath string
	// Set are settings by their path, such as redis.url.
	Set map[string]string
	// Env are further environment variables, NAME=VALUE.
	Env []string
	// Host is the address that it listens on. Defaults to 127.0.0.1.
	Host string
}

// WeirServer is a real weir server, built from this module, that lives as long as its test.
type WeirServer struct {
	t       testing.TB
	options WeirOptions
	process *Process
	rules   string
	grpc    int
	fast    int
	http    int
	client  *http.Client
}

// Weir starts `weir serve` on free ports and returns once it is ready. Drains are short, unless set otherwise.
func Weir(t testing.TB, options WeirOptions) *WeirServer {
	t.Helper()
	if options.Host == "" {
		options.Host = "127.0.0.1"
	}
	s := &WeirServer{t: t, options: options, rules: options.RulesPath, client: &http.Client{Timeout: StartTimeout}}
	t.Cleanup(s.client.CloseIdleConnections)
	if s.rules == "" {
		s.rules = t.TempDir()
		for name, text := range options.Rules {
			s.WriteRules(name, text)
		}
	}
	for range 5 {
		s.grpc, s.fast, s.http = FreePort(t), FreePort(t), FreePort(t)
		if s.start() {
			return s
		}
	}
	t.Fatalf("weir did not start: %v; its output:\n%s", s.process.Err(), s.process.Log())
	return nil
}

// start reports false if the process ended before it was ready, because a port was taken for example.
func (s *WeirServer) start() bool {
	settings := map[string]string{
		"server.host":        s.options.Host,
		"server.grpc_port":   strconv.Itoa(s.grpc),
		"server.fast_port":   strconv.Itoa(s.fast),
		"server.port":        strconv.Itoa(s.http),
		"server.drain_delay": "0s",
	}
	maps.Copy(settings, s.options.Set)
	args := []string{"serve", "--quiet", "--rules", s.rules}
	for _, path := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "--set", path+"="+settings[path])
	}
	command := exec.Command(WeirBinary(s.t), args...) //nolint:noctx // the process's own cleanup ends it
	command.Env = append(os.Environ(), s.options.Env...)
	command.Dir = s.t.TempDir() // where no configuration file is
	s.process = StartCommand(s.t, "weir", command)
	return s.process.Await(s.t, func() bool {
		status, _ := s.get("/readyz")
		return status == http.StatusOK
	})
}

// Restart starts a server that has ended again, on its ports.
func (s *WeirServer) Restart() {
	s.t.Helper()
	if s.process.Running() {
		s.process.Kill()
	}
	if !s.start() {
		s.t.Fatalf("weir did not start again: %v; its output:\n%s", s.process.Err(), s.process.Log())
	}
}

// Process is weir's process.
func (s *WeirServer) Process() *Process { return s.process }

// GRPC is the host:port of the gRPC listener.
func (s *WeirServer) GRPC() string { return s.options.Host + ":" + strconv.Itoa(s.grpc) }

// Fast is the host:port of the listener for Envoy.
func (s *WeirServer) Fast() string { return s.options.Host + ":" + strconv.Itoa(s.fast) }

// HTTP is the URL of the HTTP listener, without a path.
func (s *WeirServer) HTTP() string { return "http://" + s.options.Host + ":" + strconv.Itoa(s.http) }

// Rules is the path of its rules.
func (s *WeirServer) Rules() string { return s.rules }

// WriteRules replaces a rule file the way an editor does.
func (s *WeirServer) WriteRules(name, text string) {
	s.t.Helper()
	temporary := filepath.Join(s.rules, "."+name+".new")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(s.rules, name)); err != nil {
		s.t.Fatal(err)
	}
}

// Dial returns a gRPC connection to the server, closed with the test.
func (s *WeirServer) Dial(options ...grpc.DialOption) *grpc.ClientConn {
	s.t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	connection, err := grpc.NewClient(s.GRPC(), options...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// Get returns the status and the body of an HTTP answer.
func (s *WeirServer) Get(path string) (status int, body string) {
	s.t.Helper()
	status, body = s.get(path)
	if status == 0 {
		s.t.Fatalf("GET %s%s: %s", s.HTTP(), path, body)
	}
	return status, body
}

// get returns status 0 and the error if there was no answer.
func (s *WeirServer) get(path string) (status int, body string) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.HTTP()+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// Metric returns the value of a series as /metrics writes it, 0 if it is not there.
func (s *WeirServer) Metric(series string) float64 {
	s.t.Helper()
	_, body := s.Get("/metrics")
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				s.t.Fatalf("series %s: %v", series, err)
			}
			return value
		}
	}
	return 0
}

var weirBinary struct {
	once sync.Once
	path string
	err  error
}

// WeirBinary returns the path of the weir binary, which it brings up to date once per test process: with the race detector
// if the tests have it. TEST_WEIR names another one.
func WeirBinary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("TEST_WEIR"); path != "" {
		return path
	}
	root := Root(t)
	weirBinary.once.Do(func() { weirBinary.path, weirBinary.err = buildWeir(root) })
	if weirBinary.err != nil {
		t.Fatal(weirBinary.err)
	}
	return weirBinary.path
}

func buildWeir(root string) (string, error) {
	dir := filepath.Join(root, "build", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// The tests of several packages run at the same time and share the binary.
	unlock, err := lockedfile.MutexAt(filepath.Join(dir, "weir.lock")).Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	args := []string{"build"}
	path := filepath.Join(dir, "weir")
	if raceEnabled {
		args, path = append(args, "-race"), path+"-race"
	}
	build := exec.Command("go", append(args, "-o", path, "./cmd/weir")...) //nolint:noctx // shared by tests, so none's context fits
	build.Dir = root
	if log, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w\n%s", err, log)
	}
	return path, nil
}
