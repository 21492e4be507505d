//go:build gateway && linux

package gateway

import (
	"encoding/base64"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

const (
	envoyVersion = "1.40.0"
	gatewayHint  = "run `make e2e-gateway`, which installs it"
)

// plane is Envoy Gateway's control plane with the Envoy that it starts, both behind a root folder of their own.
type plane struct {
	t         *testing.T
	binary    string
	dir, root string
	process   *servers.Process
	old, next *authority // the authority of the first certificates, and the one of those that replace them
}

// certs is where certgen has put a component's certificate.
func (p *plane) certs(component string) string {
	return filepath.Join(p.dir, "config", "certs", component)
}

// newPlane has the control plane make its certificates and lays out its folders. start starts it.
func newPlane(t *testing.T, redis *servers.RedisServer, upstream *servers.UpstreamServer, etc map[string][]byte) *plane {
	t.Helper()
	p := &plane{t: t, dir: open(t, t.TempDir()), binary: filepath.Join(servers.Root(t), "build", "peers", "envoy-gateway"), old: newAuthority(t, "old"), next: newAuthority(t, "next")}
	if _, err := os.Stat(p.binary); err != nil {
		t.Fatalf("%v: %s", err, gatewayHint)
	}
	generate := exec.CommandContext(t.Context(), p.binary, "certgen", "--local", "--config-home", filepath.Join(p.dir, "config"))
	if output, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("envoy-gateway certgen: %v\n%s", err, output)
	}
	// Both authorities are trusted from the start by all but the rate limit service, the one whose certificates are replaced first.
	p.old.renew(t, p.certs("envoy-gateway"), p.old, p.next)
	p.old.renew(t, p.certs("envoy"), p.old, p.next)
	p.old.renew(t, p.certs(serviceCerts), p.old)

	for _, dir := range []string{"resources", "data", "state", "run", filepath.Join("data", "envoy-versions", envoyVersion, "bin")} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil { //nolint:gosec // read by another user
			t.Fatal(err)
		}
	}
	p.wrapEnvoy()
	put(t, filepath.Join(p.dir, "envoy-gateway.yaml"), []byte(strings.NewReplacer("DIR", p.dir, "REDIS", fmt.Sprintf("localhost:%d", redis.Port())).Replace(planeConfig)))
	// With a limit that stays Envoy keeps its filter: else requests pass in the moment between a route with a limit and the filter for it.
	p.write("gateway.yaml", gatewayResources(upstream)+route("always")+policy("always", annHas(1), "always"))
	p.giveEnvoyCertificate()
	p.root = root(t, etc, p.certs("envoy"))
	return p
}

// wrapEnvoy puts a script in the place of Envoy's binary. By it Envoy outlives the control plane that started it, as it does in a cluster, and
// the next one finds it running.
func (p *plane) wrapEnvoy() {
	p.t.Helper()
	script := strings.NewReplacer("DIR", p.dir, "ENVOY", servers.FindEnvoy(p.t)).Replace(`#!/bin/sh
case "$*" in *--admin-address-path*) ;; *) exec "ENVOY" "$@" ;; esac
admin=
previous=
for word in "$@"; do
	[ "$previous" = --admin-address-path ] && admin=$word
	previous=$word
done
if [ -e DIR/envoy.pid ] && kill -0 "$(cat DIR/envoy.pid)"; then
	cp "DIR/admin" "$admin"
else
	setsid "ENVOY" --disable-hot-restart "$@" >DIR/envoy.log 2>&1 &
	echo $! >DIR/envoy.pid
	until [ -s "$admin" ]; do sleep 0.05; done
	cp "$admin" DIR/admin
fi
exec sleep infinity
`)
	path := filepath.Join(p.dir, "data", "envoy-versions", envoyVersion, "bin", "envoy")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil { //nolint:gosec // a program
		p.t.Fatal(err)
	}
}

func (p *plane) start() {
	p.t.Helper()
	command := exec.Command(p.binary, "server", "--config-path", filepath.Join(p.dir, "envoy-gateway.yaml")) //nolint:noctx // its process's cleanup ends it
	command.Dir = p.dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir}
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root, Pdeathsig: syscall.SIGKILL}
	p.process = servers.StartCommand(p.t, "envoy-gateway", command)
}

// write makes a file of resources, or replaces it.
func (p *plane) write(name, text string) {
	p.t.Helper()
	put(p.t, filepath.Join(p.dir, "resources", name), []byte(text))
}

func (p *plane) remove(name string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.dir, "resources", name)); err != nil {
		p.t.Fatal(err)
	}
}

// giveEnvoyCertificate makes the certificate in certs the one that Envoy shows to the rate limit service. In a cluster certgen writes this secret; with
// files the control plane makes one of an authority that nobody else knows, unless it finds this.
func (p *plane) giveEnvoyCertificate() {
	p.t.Helper()
	encoded := func(name string) string {
		text, err := os.ReadFile(filepath.Join(p.certs("envoy"), name))
		if err != nil {
			p.t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(text)
	}
	p.write("secret.yaml", fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: envoy, namespace: envoy-gateway-system}\ntype: kubernetes.io/tls\ndata: {ca.crt: %s, tls.crt: %s, tls.key: %s}\n",
		encoded("ca.crt"), encoded("tls.crt"), encoded("tls.key")))
}

// renewService replaces the certificates of the rate limit service, which then trusts both authorities.
func (p *plane) renewService() *big.Int {
	p.t.Helper()
	return p.next.renew(p.t, p.certs(serviceCerts), p.old, p.next)
}

// envoyLog is what Envoy has written.
func (p *plane) envoyLog() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "envoy.log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-8<<10):])
}

const planeConfig = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Custom
  custom:
    resource: {type: File, file: {paths: ["DIR/resources"]}}
    infrastructure:
      type: Host
      host: {configHome: "DIR/config", dataHome: "DIR/data", stateHome: "DIR/state", runtimeDir: "DIR/run"}
extensionApis: {enableBackend: true}
logging: {level: {default: warn}}
telemetry: {metrics: {prometheus: {disable: true}}} # port 19001 is the rate limit service's here
rateLimit:
  timeout: 500ms # room for a busy machine
  backend: {type: Redis, redis: {url: REDIS}}
`
