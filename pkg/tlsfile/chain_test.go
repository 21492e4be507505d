package tlsfile_test

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/weirhq/weir/pkg/tlsfile"
	"github.com/weirhq/weir/test/servers"
)

// With SkipNameCheck a server may have any name, but its certificate must come from the CAs all the same.
func TestSkipNameCheck(t *testing.T) {
	authority, other := servers.NewAuthority(t, t.TempDir()), servers.NewAuthority(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(authority.CertFile, authority.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.(*tls.Conn).HandshakeContext(t.Context())
			_ = connection.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	dial := func(options tlsfile.ClientOptions) error {
		options.ServerName = "redis.example.com" // which the certificate does not have
		client, err := tlsfile.NewClient(options)
		if err != nil {
			t.Fatal(err)
		}
		connection, err := client.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err == nil {
			_ = connection.Close()
		}
		return err
	}
	if err := dial(tlsfile.ClientOptions{CAFile: authority.CAFile, SkipNameCheck: true}); err != nil {
		t.Errorf("another name is refused: %v", err)
	}
	var verification *tls.CertificateVerificationError
	if err := dial(tlsfile.ClientOptions{CAFile: authority.CAFile}); !errors.As(err, &verification) {
		t.Errorf("another name is accepted where names are checked: %v", err)
	}
	if err := dial(tlsfile.ClientOptions{CAFile: other.CAFile, SkipNameCheck: true}); err == nil {
		t.Error("another authority is accepted")
	}
}
