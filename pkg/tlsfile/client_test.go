package tlsfile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// call dials by the client and reads the server's byte.
func call(ctx context.Context, client *Client, address string) error {
	conn, err := client.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

func newClient(t testing.TB, options ClientOptions) *Client {
	t.Helper()
	options.CheckEvery = often
	client, err := NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestClientFollowsItsFiles(t *testing.T) {
	before, after, clients := newAuthority(t, "before"), newAuthority(t, "after"), newAuthority(t, "clients")
	servers, own := newFolder(t), newFolder(t)
	servers.pair(t, before, "server")
	servers.write(t, "clients.pem", clients.pem)
	address, states := serve(t, newServer(t, servers, func(o *ServerOptions) { o.ClientCAFile = servers.path("clients.pem") }))

	var loaded []string
	own.pair(t, clients, "first")
	own.write(t, "ca.pem", before.pem)
	client := newClient(t, ClientOptions{
		CAFile: own.path("ca.pem"), CertFile: own.path("cert.pem"), KeyFile: own.path("key.pem"),
		OnLoad: func(leaf *x509.Certificate) { loaded = append(loaded, leaf.Subject.CommonName) },
	})
	expect := func(want string) {
		t.Helper()
		if err := call(t.Context(), client, address); err != nil {
			t.Fatal(err)
		}
		if got := (<-states).PeerCertificates[0].Subject.CommonName; got != want {
			t.Errorf("the server saw %s, want %s", got, want)
		}
	}
	expect("first")
	own.pair(t, clients, "second")
	expect("second")

	servers.pair(t, after, "server") // of a CA that the client does not know yet
	if err := call(t.Context(), client, address); err == nil {
		t.Error("a certificate of an unknown CA was accepted")
	}
	own.write(t, "ca.pem", after.pem)
	expect("second")
	if loaded[0] != "first" || loaded[len(loaded)-1] != "second" {
		t.Errorf("loaded %v", loaded)
	}
}

// Who keeps one configuration shows new certificates all the same.
func TestConfigFollowsTheCertificate(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	f.pair(t, ca, "first")
	f.write(t, "ca.pem", ca.pem)
	address, states := serve(t, newServer(t, f, func(o *ServerOptions) { o.ClientCAFile = f.path("ca.pem") }))
	config := newClient(t, ClientOptions{
		CAFile: f.path("ca.pem"), CertFile: f.path("cert.pem"), KeyFile: f.path("key.pem"), ServerName: "localhost",
	}).Config()
	for _, name := range []string{"first", "second"} {
		f.pair(t, ca, name)
		if _, err := dial(t, address, config); err != nil {
			t.Fatal(err)
		}
		if got := (<-states).PeerCertificates[0].Subject.CommonName; got != name {
			t.Errorf("the server saw %s, want %s", got, name)
		}
	}
}

func TestClientChecksTheName(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	f.pair(t, ca, "redis")
	f.write(t, "ca.pem", ca.pem)
	address, _ := serve(t, newServer(t, f))
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, host string
		want       bool
	}{
		{"", "127.0.0.1", true}, // an address, which no SNI carries, is checked too
		{"", "localhost", true},
		{"redis", "127.0.0.1", true},
		{"postgres", "127.0.0.1", false},
	} {
		client := newClient(t, ClientOptions{CAFile: f.path("ca.pem"), ServerName: test.name})
		if err := call(t.Context(), client, net.JoinHostPort(test.host, port)); (err == nil) != test.want {
			t.Errorf("name %q at %s: %v", test.name, test.host, err)
		}
	}
	f.pair(t, ca, "redis", func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"redis"} })
	if err := call(t.Context(), newClient(t, ClientOptions{CAFile: f.path("ca.pem")}), address); err == nil {
		t.Error("a certificate without the address was accepted")
	}
	if err := call(t.Context(), newClient(t, ClientOptions{ServerName: "redis"}), address); err == nil {
		t.Error("a certificate that the system does not trust was accepted")
	}
}

func TestConfigIsTheCallers(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	client := newClient(t, ClientOptions{CAFile: f.write(t, "ca.pem", ca.pem), ServerName: "redis", NextProtos: []string{"h2"}})
	config := client.Config()
	config.ServerName = "changed"
	if got := client.Config(); got.ServerName != "redis" || got.MinVersion != tls.VersionTLS12 || got.NextProtos[0] != "h2" {
		t.Errorf("got %+v", got)
	}
}

func TestDialHonoursItsContext(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	err = call(ctx, newClient(t, ClientOptions{}), listener.Addr().String())
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

func TestClientOptions(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	f.pair(t, ca, "client")
	f.write(t, "text.pem", []byte("not PEM"))
	tests := []struct {
		name    string
		options ClientOptions
		want    string
	}{
		{"half a pair", ClientOptions{CertFile: f.path("cert.pem")}, "belong together"},
		{"the other half", ClientOptions{KeyFile: f.path("key.pem")}, "belong together"},
		{"no PEM", ClientOptions{CAFile: f.path("text.pem")}, "holds no certificate"},
		{"absent", ClientOptions{CAFile: f.path("absent")}, "absent: no such file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewClient(test.options)
			if !errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
