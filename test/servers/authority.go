package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority is a certificate authority with one certificate, for servers on the loopback interface and for clients.
type Authority struct {
	// The PEM files that it has written.
	CAFile, CertFile, KeyFile string

	roots *x509.CertPool
}

// NewAuthority makes an authority whose files are in dir.
func NewAuthority(t testing.TB, dir string) *Authority {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("make test certificates: %v", err)
		}
	}
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir test authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	check(err)
	caCert, err := x509.ParseCertificate(caDER)
	check(err)

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, caCert, key.Public(), caKey)
	check(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)

	encode := func(name, kind string, der []byte) string {
		return writeFile(t, dir, name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	a := &Authority{
		roots:    x509.NewCertPool(),
		CAFile:   encode("ca.pem", "CERTIFICATE", caDER),
		CertFile: encode("server.pem", "CERTIFICATE", serverDER),
		KeyFile:  encode("server.key", "PRIVATE KEY", keyDER),
	}
	a.roots.AddCert(caCert)
	return a
}

// Client returns the configuration of a client that trusts the authority and shows no certificate.
func (a *Authority) Client() *tls.Config {
	return &tls.Config{RootCAs: a.roots, MinVersion: tls.VersionTLS12}
}
