package e2e

import (
	"context"
	"crypto/tls"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weirhq/weir/test/servers"
)

// Clients must show a certificate, and the server's own is replaced while it runs, as cert-manager and Vault do.
func TestMutualTLSAndRotation(t *testing.T) {
	dir := t.TempDir()
	first := servers.NewAuthority(t, dir)
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": smallRules},
		Set: map[string]string{
			"tls.cert_file": first.CertFile, "tls.key_file": first.KeyFile, "tls.client_ca_file": first.CAFile,
			"tls.http": "false", "tls.reload_check_every": "100ms",
		},
	})
	pair, err := tls.LoadX509KeyPair(first.CertFile, first.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	try := func(authority *servers.Authority, certificates ...tls.Certificate) error {
		settings := authority.Client()
		settings.Certificates = certificates
		connection, err := grpc.NewClient(weir.GRPC(), grpc.WithTransportCredentials(credentials.NewTLS(settings)))
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		ctx, cancel := context.WithTimeout(t.Context(), servers.StartTimeout)
		defer cancel()
		_, err = rlsv3.NewRateLimitServiceClient(connection).ShouldRateLimit(ctx, peek(request("small", "user=ann")))
		return err
	}
	if err := try(first, pair); err != nil {
		t.Fatalf("a client with a certificate: %v", err)
	}
	if try(first) == nil {
		t.Error("a client without a certificate was answered")
	}

	check := func(args ...string) int {
		args = append([]string{"check", "--cost", "0", "--tls"}, args...)
		output, err := exec.CommandContext(t.Context(), servers.WeirBinary(t), append(args, weir.GRPC(), "small", "user=ann")...).CombinedOutput()
		if err == nil {
			return 0
		}
		t.Logf("weir %s: %s", strings.Join(args, " "), output)
		return 2
	}
	if check("--ca", first.CAFile, "--cert", first.CertFile, "--key", first.KeyFile) != 0 {
		t.Error("weir check with a certificate failed")
	}
	if check("--ca", first.CAFile) == 0 {
		t.Error("weir check without a certificate was answered")
	}

	elsewhere := servers.NewAuthority(t, t.TempDir())
	for from, to := range map[string]string{elsewhere.CertFile: first.CertFile, elsewhere.KeyFile: first.KeyFile, elsewhere.CAFile: first.CAFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	renewed, err := tls.LoadX509KeyPair(first.CertFile, first.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the renewed certificates are used", func() bool { return try(elsewhere, renewed) == nil })
	if try(elsewhere, pair) == nil {
		t.Error("a client of the authority that was removed is still answered")
	}
}

func TestRedisOverTLSWithPasswordFile(t *testing.T) {
	redis := servers.Redis(t, servers.WithTLS(), servers.WithPassword("correct-horse"))
	dir := t.TempDir()
	password := dir + "/password"
	if err := os.WriteFile(password, []byte("correct-horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": smallRules},
		Set: map[string]string{
			"redis.url": "rediss://localhost:" + strconv.Itoa(redis.Port()), "redis.tls.ca_file": redis.CAFile(),
			"redis.password_file": password, "redis.timeout_ms": "5000",
		},
	})
	client := clientOf(weir)
	one := request("small", "user=ann")
	for i, want := range []bool{true, true, false} {
		if got := ask(t, client, one); got != want {
			t.Errorf("request %d of a limit of 2: allowed is %v", i+1, got)
		}
	}
	if strings.Contains(weir.Process().Log(), "correct-horse") {
		t.Error("the log holds the password")
	}
	if failed := weir.Metric("weir_store_failed_charges_total"); failed != 0 {
		t.Errorf("%v charges failed", failed)
	}
}
