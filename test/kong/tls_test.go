package kong_test

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weirhq/weir/test/kong"
	"github.com/weirhq/weir/test/servers"
)

// The sidecar's certificate is checked, and the plugin shows one of its own if it has one.
func TestTLS(t *testing.T) {
	authority := servers.NewAuthority(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(authority.CertFile, authority.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(authority.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)
	server := startSidecar(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	})))
	node := kong.Start(t, 1)
	mutual := map[string]any{"ssl": true, "ca_file": authority.CAFile, "cert_file": authority.CertFile, "key_file": authority.KeyFile}
	with := func(changes map[string]any) map[string]any {
		all := maps.Clone(mutual)
		for name, value := range changes {
			if value == nil {
				delete(all, name)
			} else {
				all[name] = value
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		grpc map[string]any
		want int
	}{
		"mutual":                   {with(nil), 429},
		"by another name":          {with(map[string]any{"server_name": "localhost"}), 429},
		"a name that it has not":   {with(map[string]any{"server_name": "weir.example"}), 503},
		"any name, unchecked":      {with(map[string]any{"server_name": "weir.example", "ssl_verify": false}), 429},
		"an authority that is not": {with(map[string]any{"ca_file": nil}), 503},
		"unchecked":                {with(map[string]any{"ca_file": nil, "ssl_verify": false}), 429},
		"no certificate":           {with(map[string]any{"cert_file": nil, "key_file": nil}), 503},
		"a file that is not there": {with(map[string]any{"ca_file": "/nowhere.pem"}), 503},
		"no TLS":                   {map[string]any{"ssl": false}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			values := server.config(map[string]any{"limit_by": "ip", "hour": 1, "fault_tolerant": false, "fault_code": 503})
			maps.Copy(values["grpc"].(map[string]any), c.grpc)
			config := configure(values)
			// The first one waits for the handshake, and is charged where that ends well.
			must(t, node.Workers[0], config, anyone(0))
			if response := must(t, node.Workers[0], config, anyone(0)); response.Status != c.want {
				t.Errorf("status %d, want %d:\n%s", response.Status, c.want, node.Process().Log())
			}
		})
	}
}
