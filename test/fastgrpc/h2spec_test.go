package fastgrpc

import (
	"context"
	"crypto/tls"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/weirhq/weir/pkg/fastgrpc"
	"github.com/weirhq/weir/pkg/tlsfile"
	"github.com/weirhq/weir/test/servers"
)

// tool builds a Go program of a module in tools and returns its path.
func tool(t testing.TB, module, program string) string {
	t.Helper()
	root := servers.Root(t)
	path := filepath.Join(t.TempDir(), filepath.Base(program))
	build := exec.CommandContext(t.Context(), "go", "build", "-modfile="+filepath.Join("tools", module, "go.mod"), "-o", path, program)
	build.Dir = root
	if log, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", program, err, log)
	}
	return path
}

// serve starts a server with one method that echoes. It returns host and port.
func serve(t testing.TB, settings *tls.Config) (host, port string) {
	t.Helper()
	server := fastgrpc.New(fastgrpc.Options{TLS: settings}, fastgrpc.Method{Path: "/test.Echo/Call", Handler: func(_ context.Context, calls []fastgrpc.Call) {
		for i := range calls {
			calls[i].Reply = append(calls[i].Reply, calls[i].Request...)
		}
	}})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	host, port, err = net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

var h2specSummary = regexp.MustCompile(`(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed`)

// runH2spec runs every case in strict mode.
func runH2spec(t *testing.T, settings *tls.Config, flags ...string) {
	t.Helper()
	host, port := serve(t, settings)
	arguments := append([]string{"--strict", "--host", host, "--port", port, "--timeout", "5"}, flags...)
	output, err := exec.CommandContext(t.Context(), tool(t, "h2spec", "github.com/summerwind/h2spec/cmd/h2spec"), arguments...).CombinedOutput()
	found := h2specSummary.FindSubmatch(output)
	if err != nil || found == nil || string(found[1]) != string(found[2]) || string(found[1]) == "0" {
		t.Fatalf("h2spec: %v\n%s", err, output)
	}
	t.Logf("%s", found[0])
}

func TestH2spec(t *testing.T) {
	t.Parallel()
	runH2spec(t, nil)
}

func TestH2specOverTLS(t *testing.T) {
	t.Parallel()
	authority := servers.NewAuthority(t, t.TempDir())
	settings, err := tlsfile.Server(tlsfile.ServerOptions{
		CertFile: authority.CertFile, KeyFile: authority.KeyFile, NextProtos: []string{"h2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	runH2spec(t, settings, "--tls", "--insecure")
}
