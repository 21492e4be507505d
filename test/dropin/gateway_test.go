package dropin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirhq/weir/test/servers"
)

// mutual is the TLS of a server that wants certificates of the authority, and of a client that has one.
func mutual(t *testing.T, authority *servers.Authority) (serve, call *tls.Config) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(authority.CertFile, authority.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(authority.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	serve = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	call = authority.Client()
	call.Certificates = []tls.Certificate{pair}
	return serve, call
}

// controlPlane serves rules as Envoy Gateway does. set makes these all the rules of the node envoy-ratelimit.
func controlPlane(t *testing.T, settings *tls.Config) (address string, set func(version int, configs ...types.Resource)) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	plane := grpc.NewServer(grpc.Creds(credentials.NewTLS(settings)))
	discovery.RegisterAggregatedDiscoveryServiceServer(plane, server.NewServer(ctx, snapshots, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = plane.Serve(listener)
	}()
	t.Cleanup(func() {
		cancel()
		plane.Stop()
		<-done
	})
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return "localhost:" + port, func(version int, configs ...types.Resource) {
		t.Helper()
		snapshot, err := cache.NewSnapshot(strconv.Itoa(version), map[resource.Type][]types.Resource{resource.RateLimitConfigType: configs})
		if err != nil {
			t.Fatal(err)
		}
		if err := snapshots.SetSnapshot(t.Context(), "envoy-ratelimit", snapshot); err != nil {
			t.Fatal(err)
		}
	}
}

// The environment that Envoy Gateway gives the container, its folders apart.
func TestEnvironmentOfEnvoyGateway(t *testing.T) {
	redis := servers.Redis(t)
	authority := servers.NewAuthority(t, t.TempDir())
	serve, call := mutual(t, authority)
	plane, set := controlPlane(t, serve)
	metrics := servers.Address(servers.FreePort(t))
	s := start(t,
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+plane, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+authority.CertFile, "GRPC_SERVER_TLS_KEY="+authority.KeyFile, "GRPC_SERVER_TLS_CA_CERT="+authority.CAFile,
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+authority.CertFile, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+authority.KeyFile,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+authority.CAFile, "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr(),
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR="+metrics, "PROMETHEUS_MAPPER_YAML="+filepath.Join(t.TempDir(), "conf.yaml"),
		"WEIR_TLS_RELOAD_CHECK_EVERY=100ms")

	// Before the control plane has said something it is ready and lets requests pass.
	if status, body := s.get(s.web, "/healthcheck"); status != http.StatusOK || body != "OK" {
		t.Errorf("/healthcheck is %d %s", status, body)
	}
	connection := dial(t, s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(call)))
	const domain, descriptor = "default/eg/http", "default/policy/rule/0/match/0=default/policy/rule/0/match/0"
	for range 5 {
		if !allowed(t, connection, domain, descriptor) {
			t.Fatal("a request is denied before there are rules")
		}
	}
	if status := health(t, connection, "ratelimit"); status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health is %v", status)
	}

	key, value, _ := strings.Cut(descriptor, "=")
	rule := func(count uint32) *configpb.RateLimitConfig {
		return &configpb.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*configpb.RateLimitDescriptor{{
			Key: key, Value: value, RateLimit: &configpb.RateLimitPolicy{Unit: configpb.RateLimitUnit_HOUR, RequestsPerUnit: count},
		}}}
	}
	set(1, rule(3))
	listed := func(text string) func() bool {
		return func() bool { _, body := s.get(s.debug, "/rlconfig"); return strings.Contains(body, text) }
	}
	servers.Eventually(t, "the control plane's rules count", listed("requests_per_unit=3,"))
	for i, want := range []bool{true, true, true, false} {
		if got := allowed(t, connection, domain, descriptor); got != want {
			t.Errorf("request %d is allowed: %t, want %t", i+1, got, want)
		}
	}
	servers.Eventually(t, "the metrics are those of envoyproxy/ratelimit", func() bool {
		status, body := s.get(metrics, "/metrics")
		return status == http.StatusOK && strings.Contains(body, "ratelimit_service_rate_limit_over_limit{") && strings.Contains(body, `domain="default/eg/http"`)
	})
	set(2)
	servers.Eventually(t, "deleted rules do not count", func() bool { return allowed(t, connection, domain, descriptor) })

	// Clients without a certificate are not answered, and a replaced one counts without a restart.
	if health(t, dial(t, s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(authority.Client()))), "") != healthpb.HealthCheckResponse_UNKNOWN {
		t.Error("a client without a certificate is answered")
	}
	renewed := servers.NewAuthority(t, t.TempDir())
	for from, to := range map[string]string{renewed.CertFile: authority.CertFile, renewed.KeyFile: authority.KeyFile, renewed.CAFile: authority.CAFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	renewed.CertFile, renewed.KeyFile, renewed.CAFile = authority.CertFile, authority.KeyFile, authority.CAFile
	_, call = mutual(t, renewed)
	servers.Eventually(t, "the renewed certificates are used", func() bool {
		return health(t, dial(t, s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(call))), "") == healthpb.HealthCheckResponse_SERVING
	})
}

// Without FORCE_START_WITHOUT_INITIAL_CONFIG health waits for the control plane.
func TestWaitsForTheControlPlane(t *testing.T) {
	authority := servers.NewAuthority(t, t.TempDir())
	serve, _ := mutual(t, authority)
	plane, set := controlPlane(t, serve)
	s := start(t, "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+plane, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+authority.CertFile, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+authority.KeyFile,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+authority.CAFile)
	if status, _ := s.get(s.web, "/healthcheck"); status != http.StatusInternalServerError {
		t.Errorf("health before the first rules is %d", status)
	}
	set(1) // an empty set is one
	servers.Eventually(t, "the first set of rules makes it healthy", func() bool {
		status, _ := s.get(s.web, "/healthcheck")
		return status == http.StatusOK
	})
}
