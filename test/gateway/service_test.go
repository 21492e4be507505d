//go:build gateway && linux

package gateway

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

const (
	serviceAddress = "127.0.0.9:8081" // the control plane wants *:8081 for itself
	serviceName    = "envoy-ratelimit.envoy-gateway-system.svc.cluster.local"
	certifiedName  = "envoy-ratelimit.envoy-gateway-system" // certgen certifies no longer one
	serviceCerts   = "envoy-rate-limit"                     // certgen's name of its folder
	serviceUser    = 65534
	probe          = "http://127.0.0.1:8080/healthcheck"
	metricsURL     = "http://127.0.0.1:19001/metrics"
	rulesURL       = "http://127.0.0.1:6070/rlconfig"
)

// service is the rate limit service as Envoy Gateway's deployment runs it: by its name without arguments, with nothing but this environment,
// as a user who owns nothing.
type service struct {
	t       *testing.T
	binary  string
	root    string
	redis   *servers.RedisServer
	process *servers.Process
}

func newService(t *testing.T, redis *servers.RedisServer, root string) *service {
	t.Helper()
	s := &service{t: t, root: root, redis: redis, binary: os.Getenv("RATELIMIT_BIN")}
	if s.binary == "" {
		s.binary = copied(t, servers.WeirBinary(t), "ratelimit")
	}
	return s
}

// copied puts a program where every user may run it, under another name.
func copied(t *testing.T, program, name string) string {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(open(t, t.TempDir()), name)
	if err := os.WriteFile(path, content, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	return path
}

// open lets every user into a folder below the system's one for temporary files.
func open(t *testing.T, dir string) string {
	t.Helper()
	for at := dir; at != filepath.Clean(os.TempDir()) && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil { //nolint:gosec // see above
			t.Fatal(err)
		}
	}
	return dir
}

// start returns when the service's probe is answered.
func (s *service) start() {
	s.t.Helper()
	command := exec.Command(s.binary) //nolint:noctx // its process's cleanup ends it
	command.Dir = "/"
	command.Env = []string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false", "LOG_LEVEL=info", "USE_STATSD=false",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001", "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=/certs/tls.crt", "GRPC_SERVER_TLS_KEY=/certs/tls.key", "GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"REDIS_SOCKET_TYPE=tcp", fmt.Sprintf("REDIS_URL=localhost:%d", s.redis.Port()),
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:19001", "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		// What a pod of its own makes unnecessary.
		"GRPC_HOST=" + hostOf(serviceAddress),
	}
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: s.root, Pdeathsig: syscall.SIGKILL}
	if mapped() {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: serviceUser, Gid: serviceUser, NoSetGroups: true}
	}
	s.process = servers.StartCommand(s.t, "ratelimit", command)
	if !s.process.Await(s.t, func() bool { status, _ := get(s.t, probe); return status == http.StatusOK }) {
		s.t.Fatalf("the rate limit service ended while starting: %v\n%s", s.process.Err(), s.process.Log())
	}
}

// mapped tells whether this process may become the service's user, which in a user namespace of one user it may not.
func mapped() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	var from, to, count uint32
	if err != nil {
		return false
	}
	if _, err := fmt.Sscan(string(text), &from, &to, &count); err != nil {
		return false
	}
	return from == 0 && count > serviceUser
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}
