package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func newServer(t testing.TB, f folder, change ...func(*ServerOptions)) *tls.Config {
	t.Helper()
	options := ServerOptions{CertFile: f.path("cert.pem"), KeyFile: f.path("key.pem"), CheckEvery: often}
	for _, apply := range change {
		apply(&options)
	}
	config, err := Server(options)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestHandshake(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	f.pair(t, ca, "weir")
	address, _ := serve(t, newServer(t, f, func(o *ServerOptions) { o.NextProtos = []string{"h2", "http/1.1"} }))

	client := trusting(ca)
	client.NextProtos = []string{"http/1.1", "h2"}
	state, err := dial(t, address, client)
	if err != nil {
		t.Fatal(err)
	}
	if state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != "h2" {
		t.Errorf("version %x, protocol %q", state.Version, state.NegotiatedProtocol)
	}
	old := trusting(ca)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, err := dial(t, address, old); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
	if _, err := dial(t, address, trusting(newAuthority(t, "another"))); err == nil {
		t.Error("a client accepted a certificate of a CA that it does not trust")
	}
}

func TestRotation(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	var loaded []string
	f.pair(t, ca, "first")
	address, _ := serve(t, newServer(t, f, func(o *ServerOptions) {
		o.OnLoad = func(leaf *x509.Certificate) { loaded = append(loaded, leaf.Subject.CommonName) }
	}))
	for _, name := range []string{"first", "second", "third"} {
		f.pair(t, ca, name)
		state, err := dial(t, address, trusting(ca))
		if err != nil {
			t.Fatal(err)
		}
		if got := state.PeerCertificates[0].Subject.CommonName; got != name {
			t.Errorf("the server shows %s, want %s", got, name)
		}
	}
	// "first" was written twice before the first handshake.
	if got := strings.Join(loaded, " "); got != "first first second third" {
		t.Errorf("loaded %s", got)
	}
}

// A Kubernetes Secret is updated by swapping a symlink to its folder.
func TestRotationBySymlink(t *testing.T) {
	ca, mount := newAuthority(t, "ca"), newFolder(t)
	publish := func(version string) {
		t.Helper()
		dir := mount.path("..." + version)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		folder{dir}.pair(t, ca, version)
		if err := os.Symlink(filepath.Base(dir), mount.path("..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(mount.path("..data_tmp"), mount.path("..data")); err != nil {
			t.Fatal(err)
		}
	}
	publish("v1")
	for _, name := range []string{"cert.pem", "key.pem"} {
		if err := os.Symlink(filepath.Join("..data", name), mount.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	address, _ := serve(t, newServer(t, mount))
	for _, version := range []string{"v1", "v2", "v3"} {
		if version != "v1" {
			publish(version)
		}
		state, err := dial(t, address, trusting(ca))
		if err != nil {
			t.Fatal(err)
		}
		if got := state.PeerCertificates[0].Subject.CommonName; got != version {
			t.Errorf("the server shows %s, want %s", got, version)
		}
	}
}

// While the new files cannot be used the old pair serves; it is logged once, and heals without a change of the certificate.
func TestBrokenFilesChangeNothing(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	f.pair(t, ca, "first")
	var log logBuffer
	address, _ := serve(t, newServer(t, f, func(o *ServerOptions) { o.Logger = log.logger() }))
	expect := func(want string) {
		t.Helper()
		for range 3 {
			state, err := dial(t, address, trusting(ca))
			if err != nil {
				t.Fatal(err)
			}
			if got := state.PeerCertificates[0].Subject.CommonName; got != want {
				t.Errorf("the server shows %s, want %s", got, want)
			}
		}
	}
	expect("first")
	certificate, key := ca.issue(t, "second")
	f.write(t, "cert.pem", certificate) // its key is not there yet
	expect("first")
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d lines about it:\n%s", n, log.String())
	}
	f.write(t, "cert.pem", certificate[:len(certificate)/2])
	expect("first")
	if err := os.Remove(f.path("cert.pem")); err != nil {
		t.Fatal(err)
	}
	expect("first")
	f.write(t, "cert.pem", certificate)
	expect("first")
	f.write(t, "key.pem", key)
	expect("second")
	if !strings.Contains(log.String(), "level=INFO") {
		t.Errorf("it does not say that the new files are used:\n%s", log.String())
	}
	if strings.Contains(log.String(), "PRIVATE") {
		t.Error("a key is logged")
	}
}

// Files that could not be read for their permissions do not change when the permissions do.
func TestBrokenFilesAreTriedAgain(t *testing.T) {
	calls := 0
	errDenied := errors.New("permission denied")
	f := newFolder(t)
	path := f.write(t, "file", []byte("1"))
	files, err := newSource([]string{path}, often, nil, func() (*int, error) {
		calls++
		if calls == 2 {
			return nil, errDenied
		}
		value := calls
		return &value, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, "file", []byte("22"))
	if got := *files.get(); got != 1 {
		t.Errorf("got %d after a failure", got)
	}
	if got := *files.get(); got != 3 {
		t.Errorf("got %d, want what was loaded at the next look", got)
	}
	if got := *files.get(); got != 3 {
		t.Errorf("got %d, though nothing changed", got)
	}
}

func TestFilesAreLookedAtNowAndThen(t *testing.T) {
	loads := 0
	f := newFolder(t)
	path := f.write(t, "file", []byte("1"))
	files, err := newSource([]string{path}, time.Hour, nil, func() (*int, error) { loads++; return new(int), nil })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		f.write(t, "file", []byte(strings.Repeat("x", i)))
		files.get()
	}
	if loads != 1 {
		t.Errorf("%d loads within the interval", loads)
	}
	files.born = files.born.Add(-2 * time.Hour)
	files.get()
	files.get()
	if loads != 2 {
		t.Errorf("%d loads after the interval", loads)
	}
}

func TestClientCertificates(t *testing.T) {
	ca, clients, stranger, f := newAuthority(t, "ca"), newAuthority(t, "clients"), newAuthority(t, "stranger"), newFolder(t)
	f.pair(t, ca, "weir")
	f.write(t, "clients.pem", clients.pem)
	address, states := serve(t, newServer(t, f, func(o *ServerOptions) {
		o.ClientCAFile = f.path("clients.pem")
		o.ClientNames = []string{"spiffe://edge/envoy", "gateway.example", "10.1.2.3", "ops@example.org"}
	}))
	tests := []struct {
		name   string
		issuer *authority
		change func(*x509.Certificate)
		want   bool
	}{
		{"none", nil, nil, false},
		{"another CA", stranger, withURI(t, "spiffe://edge/envoy"), false},
		{"no allowed name", clients, withURI(t, "spiffe://edge/other"), false},
		{"longer name", clients, withURI(t, "spiffe://edge/envoy/2"), false},
		{"common name alone", clients, func(c *x509.Certificate) { c.Subject.CommonName = "gateway.example" }, false},
		{"URI", clients, withURI(t, "spiffe://edge/envoy"), true},
		{"DNS name", clients, func(c *x509.Certificate) { c.DNSNames = []string{"x", "gateway.example"} }, true},
		{"address", clients, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 1, 2, 3)} }, true},
		{"mail", clients, func(c *x509.Certificate) { c.EmailAddresses = []string{"ops@example.org"} }, true},
		{"expired", clients, func(c *x509.Certificate) {
			c.DNSNames = []string{"gateway.example"}
			c.NotAfter = time.Now().Add(-time.Minute)
		}, false},
		{"for servers alone", clients, func(c *x509.Certificate) {
			c.DNSNames = []string{"gateway.example"}
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			client := trusting(ca)
			if test.issuer != nil {
				pair, err := tls.X509KeyPair(test.issuer.issue(t, "client", test.change))
				if err != nil {
					t.Fatal(err)
				}
				client.Certificates = []tls.Certificate{pair}
			}
			if _, err := dial(t, address, client); (err == nil) != test.want {
				t.Errorf("got %v", err)
			}
			if test.want {
				if state := <-states; len(state.PeerCertificates) == 0 {
					t.Error("the server saw no certificate")
				}
			}
		})
	}
}

// A CA that was replaced: its clients are out, also those that have a session of before.
func TestClientCARotation(t *testing.T) {
	ca, before, after, f := newAuthority(t, "ca"), newAuthority(t, "before"), newAuthority(t, "after"), newFolder(t)
	f.pair(t, ca, "weir")
	f.write(t, "clients.pem", before.pem)
	address, _ := serve(t, newServer(t, f, func(o *ServerOptions) { o.ClientCAFile = f.path("clients.pem") }))
	client := func(a *authority) *tls.Config {
		pair, err := tls.X509KeyPair(a.issue(t, "client"))
		if err != nil {
			t.Fatal(err)
		}
		config := trusting(ca)
		config.Certificates = []tls.Certificate{pair}
		config.ClientSessionCache = tls.NewLRUClientSessionCache(10)
		return config
	}
	old, fresh := client(before), client(after)
	for range 2 {
		if state, err := dial(t, address, old); err != nil || state.DidResume {
			t.Errorf("resumed %v, %v", state.DidResume, err)
		}
	}
	if _, err := dial(t, address, fresh); err == nil {
		t.Error("a client of an unknown CA got in")
	}
	f.write(t, "clients.pem", append(append([]byte{}, before.pem...), after.pem...)) // both, while clients are renewed
	for _, config := range []*tls.Config{old, fresh} {
		if _, err := dial(t, address, config); err != nil {
			t.Error(err)
		}
	}
	f.write(t, "clients.pem", after.pem)
	if _, err := dial(t, address, old); err == nil {
		t.Error("a client of the CA that was removed got in")
	}
	if _, err := dial(t, address, fresh); err != nil {
		t.Error(err)
	}
}

func TestServerOptions(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	f.pair(t, ca, "weir")
	_, foreign := ca.issue(t, "other")
	f.write(t, "foreign.pem", foreign)
	f.write(t, "text.pem", []byte("not PEM"))
	f.write(t, "huge.pem", make([]byte, maxFileBytes+1))
	cert, key := f.path("cert.pem"), f.path("key.pem")
	tests := []struct {
		name    string
		options ServerOptions
		want    string
	}{
		{"nothing", ServerOptions{}, "belong together"},
		{"no key", ServerOptions{CertFile: cert}, "belong together"},
		{"absent", ServerOptions{CertFile: f.path("absent"), KeyFile: key}, "absent: no such file"},
		{"absent key", ServerOptions{CertFile: cert, KeyFile: f.path("absent")}, "absent: no such file"},
		{"foreign key", ServerOptions{CertFile: cert, KeyFile: f.path("foreign.pem")}, "private key does not match"},
		{"not PEM", ServerOptions{CertFile: f.path("text.pem"), KeyFile: key}, "text.pem"},
		{"CA is not PEM", ServerOptions{CertFile: cert, KeyFile: key, ClientCAFile: f.path("text.pem")}, "holds no certificate"},
		{"CA is absent", ServerOptions{CertFile: cert, KeyFile: key, ClientCAFile: f.path("absent")}, "absent: no such file"},
		{"huge", ServerOptions{CertFile: cert, KeyFile: key, ClientCAFile: f.path("huge.pem")}, "larger than"},
		{"names without CA", ServerOptions{CertFile: cert, KeyFile: key, ClientNames: []string{"a"}}, "without a file of CAs"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Server(test.options)
			if !errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// Certificates are replaced under handshakes: each one sees a whole pair, old or new.
func TestRotationUnderLoad(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	f.pair(t, ca, "weir")
	address, _ := serve(t, newServer(t, f))
	stop := make(chan struct{})
	var handshakes atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := dial(t, address, trusting(ca)); err != nil {
					t.Error(err)
					return
				}
				handshakes.Add(1)
			}
		})
	}
	for handshakes.Load() < 200 {
		f.pair(t, ca, "weir") // in place, in two steps
	}
	close(stop)
	group.Wait()
}

// grpc's credentials copy the configuration.
func TestGRPC(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	f.pair(t, ca, "first")
	config := newServer(t, f, func(o *ServerOptions) { o.NextProtos = []string{"h2"} })
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"first", "second"} {
		f.pair(t, ca, name)
		client := trusting(ca)
		client.ServerName = name
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(client)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
	}
}

func TestHTTPServer(t *testing.T) {
	ca, f := newAuthority(t, "ca"), newFolder(t)
	f.pair(t, ca, "weir")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		TLSConfig:         newServer(t, f, func(o *ServerOptions) { o.NextProtos = []string{"h2", "http/1.1"} }),
		ReadHeaderTimeout: time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	defer func() {
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	for _, http2 := range []bool{true, false} {
		transport := &http.Transport{TLSClientConfig: trusting(ca), ForceAttemptHTTP2: http2}
		if !http2 {
			transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+listener.Addr().String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if (response.ProtoMajor == 2) != http2 {
			t.Errorf("protocol %s, HTTP/2 %v", response.Proto, http2)
		}
		transport.CloseIdleConnections()
	}
}
