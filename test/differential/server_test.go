package differential

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirhq/weir/test/servers"
)

// answerTimeout is generous, because test machines are busy.
const answerTimeout = 20 * time.Second

// server is a rate limit service that was started by nothing but its environment, with a Redis of its own.
type server struct {
	t       testing.TB
	name    string
	process *servers.Process
	http    string
	debug   string
	rules   string
	rls     rlsv3.RateLimitServiceClient
	stats   *statsd
	redis   *servers.RedisServer
}

// environment is what both servers get, beside their ports and folders.
var environment = map[string]string{
	"HOST":                           "127.0.0.1",
	"GRPC_HOST":                      "127.0.0.1",
	"DEBUG_HOST":                     "127.0.0.1",
	"REDIS_SOCKET_TYPE":              "tcp",
	"RUNTIME_SUBDIRECTORY":           "ratelimit",
	"RUNTIME_IGNOREDOTFILES":         "true",
	"RUNTIME_WATCH_ROOT":             "false",
	"LOG_LEVEL":                      "warn",
	"USE_STATSD":                     "true",
	"STATSD_HOST":                    "127.0.0.1",
	"STATS_FLUSH_INTERVAL":           "1s",
	"LIMIT_RESPONSE_HEADERS_ENABLED": "true",
	"RESPONSE_DYNAMIC_METADATA":      "true",
	"MERGE_DOMAIN_CONFIG":            "true",
}

// start runs a binary that is, or stands in for, /bin/ratelimit. env comes on top of environment.
func start(t testing.TB, name, path string, env map[string]string) *server {
	t.Helper()
	for range 5 {
		s := &server{t: t, name: name, stats: listenStatsd(t), redis: servers.Redis(t)}
		root := t.TempDir()
		s.rules = filepath.Join(root, "ratelimit", "config")
		if err := os.MkdirAll(s.rules, 0o750); err != nil {
			t.Fatal(err)
		}
		httpPort, grpcPort, debugPort := servers.FreePort(t), servers.FreePort(t), servers.FreePort(t)
		s.http, s.debug = "http://"+servers.Address(httpPort), "http://"+servers.Address(debugPort)
		command := exec.Command(path) //nolint:noctx // the process's own cleanup ends it
		command.Dir = t.TempDir()
		command.Env = append(os.Environ(), "PORT="+strconv.Itoa(httpPort), "GRPC_PORT="+strconv.Itoa(grpcPort),
			"DEBUG_PORT="+strconv.Itoa(debugPort), "REDIS_URL="+s.redis.Addr(), "RUNTIME_ROOT="+root,
			"STATSD_PORT="+strconv.Itoa(s.stats.port()))
		for _, set := range []map[string]string{environment, env} {
			for key, value := range set {
				command.Env = append(command.Env, key+"="+value)
			}
		}
		s.process = servers.StartCommand(t, name, command)
		if !s.process.Await(t, func() bool {
			status, _ := s.get(s.http + "/healthcheck")
			return status == http.StatusOK
		}) {
			continue // a port was taken meanwhile
		}
		connection, err := grpc.NewClient(servers.Address(grpcPort), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		s.rls = rlsv3.NewRateLimitServiceClient(connection)
		return s
	}
	t.Fatalf("%s did not start", name)
	return nil
}

// request asks for a URL and returns status 0 if nobody answered.
func (s *server) request(method, url string, body []byte) (status int, answer []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return response.StatusCode, answer
}

func (s *server) get(url string) (int, []byte) { return s.request(http.MethodGet, url, nil) }

// load replaces the rules and waits until they are in force.
func (s *server) load(text string, listing []string) {
	s.t.Helper()
	temporary := filepath.Join(s.rules, ".new")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(s.rules, "rules.yaml")); err != nil {
		s.t.Fatal(err)
	}
	var last []string
	for deadline := time.Now().Add(servers.StartTimeout); ; time.Sleep(5 * time.Millisecond) {
		if last = s.listing(); slices.Equal(last, listing) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s has not loaded\n%s\nbut lists\n%s\nand not\n%s", s.name, text, strings.Join(last, "\n"), strings.Join(listing, "\n"))
		}
	}
}

// listing is what /rlconfig says, sorted.
func (s *server) listing() []string {
	s.t.Helper()
	status, body := s.get(s.debug + "/rlconfig")
	if status != http.StatusOK {
		s.t.Fatalf("%s: GET /rlconfig: %d %s", s.name, status, body)
	}
	lines := strings.FieldsFunc(string(body), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], unlimitedMark)
	}
	slices.Sort(lines)
	return lines
}

// answer is what one server says to one request.
type answer struct {
	reply  *rlsv3.RateLimitResponse // nil: an error
	status int                      // of HTTP, if asked so
	err    error
}

func (s *server) ask(request *rlsv3.RateLimitRequest) answer {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	reply, err := s.rls.ShouldRateLimit(ctx, request)
	return answer{reply: reply, err: err}
}

// askJSON asks at /json.
func (s *server) askJSON(request *rlsv3.RateLimitRequest) answer {
	s.t.Helper()
	body, err := protojson.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	status, text := s.request(http.MethodPost, s.http+"/json", body)
	reply := new(rlsv3.RateLimitResponse)
	if status != http.StatusOK && status != http.StatusTooManyRequests {
		return answer{status: status}
	}
	if err := protojson.Unmarshal(text, reply); err != nil {
		s.t.Fatalf("%s: POST /json %s: %d %s: %v", s.name, body, status, text, err)
	}
	return answer{reply: reply, status: status}
}
