package xds

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/weirhq/weir/pkg/tlsfile"
	"github.com/weirhq/weir/test/servers"
)

// protected returns options for a control plane that wants certificates, as Envoy Gateway's does, and the serial numbers of those that
// it is shown.
func protected(t *testing.T, files *servers.Authority) (option grpc.ServerOption, shown chan string, watch grpc.ServerOption) {
	t.Helper()
	settings, err := tlsfile.Server(tlsfile.ServerOptions{
		CertFile: files.CertFile, KeyFile: files.KeyFile, ClientCAFile: files.CAFile, NextProtos: []string{"h2"}, CheckEvery: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	shown = make(chan string, 1000)
	watch = grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		shown <- certificateOf(stream.Context())
		return handler(srv, stream)
	})
	return grpc.Creds(credentials.NewTLS(settings)), shown, watch
}

// certificateOf is the certificate that a client has shown.
func certificateOf(ctx context.Context) string {
	if client, ok := peer.FromContext(ctx); ok {
		if info, ok := client.AuthInfo.(credentials.TLSInfo); ok {
			return string(info.State.PeerCertificates[0].Raw)
		}
	}
	return ""
}

func clientFiles(t *testing.T, options tlsfile.ClientOptions) *tlsfile.Client {
	t.Helper()
	options.CheckEvery = time.Millisecond
	client, err := tlsfile.NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Certificates and CAs that are replaced on both sides while the process runs serve the next stream.
func TestCertificatesThatAreReplaced(t *testing.T) {
	dir := t.TempDir()
	files := servers.NewAuthority(t, dir)
	creds, shown, watch := protected(t, files)
	p := newPlane(t, creds, watch)
	client, into := follow(t, Options{Server: p.address, TLS: clientFiles(t, tlsfile.ClientOptions{
		CAFile: files.CAFile, CertFile: files.CertFile, KeyFile: files.KeyFile, ServerName: "localhost",
	})})
	p.set(users("a", 1))
	p.acked(1)
	before := receive(t, shown, "the client's certificate")

	servers.NewAuthority(t, dir) // another CA, another pair, in the same files
	p.stop()
	eventually(t, "the end of the stream", func() bool { return client.Ready(t.Context()) != nil })
	p.start(p.address, creds, watch)
	p.set(users("a", 2))
	p.acked(1)
	if after := receive(t, shown, "the client's next certificate"); after == "" || after == before {
		t.Error("the second stream was opened with the certificate of the first")
	}
	if into.limit("a", "ann") != 2 {
		t.Error("the rules of the second stream are not in force")
	}
}

func TestControlPlaneThatIsNotTrusted(t *testing.T) {
	files := servers.NewAuthority(t, t.TempDir())
	other := servers.NewAuthority(t, t.TempDir())
	creds, _, watch := protected(t, files)
	p := newPlane(t, creds, watch)
	p.set(users("a", 1))
	for _, test := range []struct {
		name string
		tls  *tlsfile.Client
		want string
	}{
		{"another name", clientFiles(t, tlsfile.ClientOptions{
			CAFile: files.CAFile, CertFile: files.CertFile, KeyFile: files.KeyFile, ServerName: "envoy-gateway",
		}), "not envoy-gateway"},
		{"another CA", clientFiles(t, tlsfile.ClientOptions{CAFile: other.CAFile, CertFile: files.CertFile, KeyFile: files.KeyFile}), "unknown authority"},
		{"no certificate of the client", clientFiles(t, tlsfile.ClientOptions{CAFile: files.CAFile}), ""},
		{"a certificate of another CA", clientFiles(t, tlsfile.ClientOptions{CAFile: files.CAFile, CertFile: other.CertFile, KeyFile: other.KeyFile}), ""},
		{"no TLS", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			observed := &observer{}
			client, into := follow(t, Options{Server: p.address, TLS: test.tls, Observer: observed})
			eventually(t, "three failures", func() bool { return observed.downs.Load() >= 3 })
			eventually(t, "an error that says why", func() bool {
				err := client.Ready(t.Context())
				return err != nil && strings.Contains(err.Error(), test.want)
			})
			if table, _ := into.current(); table != nil || observed.accepted.Load() > 0 {
				t.Error("rules of it are in force")
			}
		})
	}
}
