package e2e

import (
	"context"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirhq/weir/test/servers"
)

func TestEnvoyLimitsThroughTheFastPort(t *testing.T) {
	rules := strings.Replace(edgeRules, "limit: 1000000", "limit: 3", 1)
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"edge.yaml": rules}})
	envoy, upstream := startEnvoy(t, weir.Fast())
	exhaust(t, envoy, 5)
	if got := get(t, envoy.URL("ingress-2")+"/"); got.status != http.StatusTooManyRequests || got.header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("answered %d %v", got.status, got.header)
	}
	if got := upstream.Requests(); got != 5 {
		t.Errorf("%d requests reached the upstream, want 5", got)
	}
	if failed := envoy.Stat("cluster.echo.ratelimit.error"); failed != 0 {
		t.Errorf("%d calls failed", failed)
	}

	weir.Process().Kill()
	if got := get(t, envoy.URL("ingress")+"/"); got.status != http.StatusOK {
		t.Errorf("without weir a request was answered %d", got.status)
	}
	weir.Restart()
	envoy.AwaitHealthy("ratelimit", 1)
	exhaust(t, envoy, 5)
}

// Connections end by age all the time, and one of two servers drains and comes back: Envoy loses no call.
func TestEnvoyLosesNoCallOfTheFastPort(t *testing.T) {
	options := servers.WeirOptions{
		Rules: map[string]string{"edge.yaml": strings.Replace(edgeRules, "limit: 5,", "limit: 1000000000,", 1)},
		Set:   map[string]string{"server.grpc.max_connection_age": "1s", "server.drain_delay": "3s"},
	}
	first, second := servers.Weir(t, options), servers.Weir(t, options)
	envoy, _ := startEnvoy(t, first.Fast(), second.Fast())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var answered atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if got := get(t, envoy.URL("ingress")+"/"); got.status != http.StatusOK {
					t.Errorf("answered %d", got.status)
					return
				}
				answered.Add(1)
			}
		})
	}
	servers.Eventually(t, "some calls are answered", func() bool { return answered.Load() > 500 })
	first.Process().Signal(syscall.SIGTERM)
	<-first.Process().Done()
	if err := first.Process().Err(); err != nil {
		t.Errorf("the server that drained ended with %v", err)
	}
	first.Restart()
	envoy.AwaitHealthy("ratelimit", 2)
	at := answered.Load()
	servers.Eventually(t, "more calls are answered", func() bool { return answered.Load() > at+500 })
	stop()
	callers.Wait()
	if failed := envoy.Stat("cluster.echo.ratelimit.error"); failed != 0 {
		t.Errorf("%d of %d calls failed", failed, answered.Load())
	}
	if ended := envoy.Stat("cluster.ratelimit.upstream_cx_destroy"); ended < 3 {
		t.Errorf("only %d connections ended", ended)
	}
}

func TestFastPortOverTLSAndSocket(t *testing.T) {
	authority := servers.NewAuthority(t, t.TempDir())
	socket := filepath.Join(t.TempDir(), "fast.sock")
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": smallRules},
		Set: map[string]string{
			"tls.cert_file": authority.CertFile, "tls.key_file": authority.KeyFile, "tls.client_ca_file": authority.CAFile,
			"tls.http": "false", "server.fast.socket": socket,
		},
	})
	pair, err := tls.LoadX509KeyPair(authority.CertFile, authority.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	try := func(target string, settings credentials.TransportCredentials) error {
		connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(settings))
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = rlsv3.NewRateLimitServiceClient(connection).ShouldRateLimit(ctx, peek(request("small", "user=ann")))
		return err
	}
	mutual := authority.Client()
	mutual.Certificates = []tls.Certificate{pair}
	if err := try(weir.Fast(), credentials.NewTLS(mutual)); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if try(weir.Fast(), credentials.NewTLS(authority.Client())) == nil {
		t.Error("a client without a certificate was answered")
	}
	if try(weir.Fast(), insecure.NewCredentials()) == nil {
		t.Error("a client without TLS was answered")
	}
	if err := try("unix:"+socket, insecure.NewCredentials()); err != nil {
		t.Errorf("on the socket: %v", err)
	}
	dialer := &tls.Dialer{Config: mutual.Clone()} // offers no protocol
	connection, err := dialer.DialContext(t.Context(), "tcp", weir.Fast())
	if err == nil {
		_, err = connection.Read(make([]byte, 1))
		_ = connection.Close()
	}
	if err == nil {
		t.Error("a client that did not ask for HTTP/2 was served")
	}
}

func TestFastPortCanBeTurnedOff(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": smallRules}, Set: map[string]string{"server.fast.enabled": "false"},
	})
	response, err := http.Get("http://" + weir.Fast()) //nolint:noctx // refused at once
	if err == nil {
		_ = response.Body.Close()
		t.Error("the fast port is served")
	}
}
