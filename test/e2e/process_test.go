package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/test/servers"
)

const smallRules = `
domain: small
descriptors:
  - key: user
    limits: [{algorithm: fixed_window, limit: 2, window: 30d}]
`

func TestHealthAndReflection(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"rules.yaml": smallRules}})
	connection := weir.Dial()
	for _, service := range []string{"", envoy.ServiceName} {
		reply, err := healthpb.NewHealthClient(connection).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || reply.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, reply, err)
		}
	}
	stream, err := reflectionpb.NewServerReflectionClient(connection).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: envoy.ServiceName},
	})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil || len(reply.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection does not describe %s: %v, %v", envoy.ServiceName, reply, err)
	}
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir") // a path short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "weir.sock")
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": smallRules}, Set: map[string]string{"server.grpc_socket": socket},
	})
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	client := rlsv3.NewRateLimitServiceClient(connection)
	one := request("small", "user=ann")
	if !ask(t, client, one) || !ask(t, clientOf(weir), one) || ask(t, client, one) {
		t.Error("the socket and the port do not share their counters")
	}

	weir.Process().Kill()
	weir.Restart() // over the socket that the dead process left
	connection.ResetConnectBackoff()
	ctx, cancel := context.WithTimeout(t.Context(), servers.StartTimeout)
	defer cancel()
	if _, err := client.ShouldRateLimit(ctx, one, grpc.WaitForReady(true)); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

func TestDrain(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": smallRules}, Set: map[string]string{"server.drain_delay": "10m"},
	})
	connection := weir.Dial()
	health := healthpb.NewHealthClient(connection)
	weir.Process().Signal(syscall.SIGTERM)
	servers.Eventually(t, "health says NOT_SERVING", func() bool {
		reply, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: envoy.ServiceName})
		return err == nil && reply.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING
	})
	if status, body := weir.Get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "shutting down") {
		t.Errorf("/readyz of a draining server is %d %s", status, body)
	}
	if status, _ := weir.Get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz of a draining server is %d: it must not be killed for draining", status)
	}
	if !ask(t, rlsv3.NewRateLimitServiceClient(connection), request("small", "user=ann")) {
		t.Error("a draining server denied a request below the limit")
	}
	weir.Process().Signal(syscall.SIGTERM) // the second signal does not wait so long
	select {
	case <-weir.Process().Done():
	case <-time.After(servers.StartTimeout):
		t.Fatal("the second signal did not end the server")
	}
	if err := weir.Process().Err(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestSafeDefaultUntilTheRulesAreRight(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": "domain: small\ndescriptors: [{key: user, limitz: []}]\n"},
		Set:   map[string]string{"ratelimit.default_limit": "1", "ratelimit.default_window_seconds": "86400"},
	})
	client := clientOf(weir)
	one := request("anything", "key=value")
	if !ask(t, client, one) || ask(t, client, one) {
		t.Error("the safe default, 1 a day, does not hold")
	}
	if weir.Metric("weir_rules_safe_default") != 1 {
		t.Error("weir_rules_safe_default is not 1")
	}
	if status, body := weir.Get("/readyz"); status != http.StatusOK || !strings.Contains(body, "limitz") {
		t.Errorf("/readyz is %d %s: want 200 and the fault", status, body)
	}
	weir.WriteRules("rules.yaml", smallRules)
	servers.Eventually(t, "the rules are in force", func() bool { return weir.Metric("weir_rules_safe_default") == 0 })
	if !ask(t, client, one) {
		t.Error("a domain that the rules do not know is limited")
	}
	weir.Process().Signal(syscall.SIGHUP)
	servers.Eventually(t, "SIGHUP loads the rules", func() bool {
		return weir.Metric(`weir_rules_reloads_total{result="success"}`) == 2
	})
}

func TestProfilesAreForThisMachineOnly(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"rules.yaml": smallRules}})
	if got := get(t, weir.HTTP()+"/debug/pprof/cmdline"); got.status != http.StatusOK {
		t.Errorf("a profile for the loopback address is answered %d", got.status)
	}
	if got := get(t, weir.HTTP()+"/debug/pprof/cmdline", "X-Forwarded-For", "192.0.2.1"); got.status != http.StatusNotFound {
		t.Errorf("a profile through a proxy is answered %d, want 404", got.status)
	}
}

func TestStartFailsWithAWayOut(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"rules.yaml": smallRules}})
	port := weir.GRPC()[strings.LastIndexByte(weir.GRPC(), ':')+1:]
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a port that is taken": {[]string{"--set", "server.host=127.0.0.1", "--set", "server.grpc_port=" + port}, "is taken by another process: stop it, or set another port"},
		"no such setting":      {[]string{"--set", "server.prot=1"}, "server.port"},
		"no such file":         {[]string{"--config", "nowhere.yaml"}, "name a file that exists"},
		"no value":             {[]string{"--set", "server.port"}, "write SETTING=VALUE"},
		"an unknown flag":      {[]string{"--prot", "1"}, "weir serve --help"},
		"a missing key file":   {[]string{"--set", "tls.cert_file=x.pem"}, "tls.key_file"},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), servers.WeirBinary(t), append([]string{"serve"}, test.args...)...)
			command.Dir = t.TempDir()
			output, err := command.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("ended with %v, want exit status 2", err)
			}
			if !strings.Contains(string(output), test.want) {
				t.Errorf("printed\n%swant %q in it", output, test.want)
			}
		})
	}
}

func TestIdentifiersAreNotLogged(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": smallRules}, Set: map[string]string{"log.level": "debug"},
	})
	client := clientOf(weir)
	for range 3 {
		ask(t, client, request("small", "user=secret-subject"))
	}
	log := weir.Process().Log()
	if strings.Contains(log, "secret-subject") {
		t.Errorf("the log holds an identifier:\n%s", log)
	}
	if n := strings.Count(log, "msg=decided domain=small rule=user"); n != 3 {
		t.Errorf("%d decisions were logged at level debug, want 3:\n%s", n, log)
	}
}
