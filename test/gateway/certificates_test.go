//go:build gateway && linux

package gateway

import (
	"context"
	"crypto/tls"
	"math/big"
	"net/http"
	"testing"
	"time"
)

// certificates replaces the service's certificate and what it trusts, then the control plane's, which no longer trusts the authority of the
// service's first certificate, then Envoy's. Nothing but the control plane is restarted.
func certificates(t *testing.T, w *world) {
	ann := w.over(t, "renewed")
	shown := w.plane.renewService()
	// In a cluster a mounted secret follows within a minute or so; what the service adds to that is bounded here.
	within(t, recovery, "the service shows its replaced certificate", func() bool {
		got := peer(t, client(t, w.plane.certs("envoy"), w.plane.old, w.plane.next))
		return got != nil && got.Cmp(shown) == 0
	})
	if status := w.send(t, ann); status != http.StatusTooManyRequests {
		t.Errorf("a request over the limit is answered %d", status)
	}

	w.plane.process.Kill()
	w.plane.next.renew(t, w.plane.certs("envoy-gateway"), w.plane.next)
	w.plane.next.renew(t, w.plane.certs("envoy"), w.plane.old, w.plane.next)
	w.plane.giveEnvoyCertificate()
	w.plane.start()
	raised, lowered := route("renewed")+policy("renewed", annHas(1000), "renewed"), route("renewed")+policy("renewed", annHas(2), "renewed")
	t.Logf("figure: a policy is in force %v after the start of a control plane of another authority", w.takes(t, "renewed", raised, ann, http.StatusOK))
	w.takes(t, "renewed", lowered, ann, http.StatusTooManyRequests)

	// A client that the new authority vouches for is answered, one without a certificate is not.
	if peer(t, client(t, w.plane.certs("envoy"), w.plane.next)) == nil {
		t.Error("a client with a certificate of the new authority is not answered")
	}
	if peer(t, &tls.Config{RootCAs: client(t, w.plane.certs("envoy"), w.plane.next).RootCAs, ServerName: certifiedName, MinVersion: tls.VersionTLS12}) != nil {
		t.Error("a client without a certificate is answered")
	}
}

// peer is the serial number of the certificate that the rate limit service shows to a client that it answers, nil if it does not.
func peer(t *testing.T, settings *tls.Config) *big.Int {
	t.Helper()
	settings.NextProtos = []string{"h2"}
	ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
	defer cancel()
	connection, err := (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", serviceAddress)
	if err != nil {
		return nil
	}
	defer connection.Close()
	// In TLS 1.3 a server refuses a client's certificate after the client's side of the handshake: what counts is that it speaks.
	if _, err := connection.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return nil
	}
	if err := connection.SetReadDeadline(time.Now().Add(clientTimeout)); err != nil {
		t.Fatal(err)
	}
	if n, err := connection.Read(make([]byte, 1)); n == 0 || err != nil {
		return nil
	}
	secured, ok := connection.(*tls.Conn)
	if !ok {
		t.Fatalf("the connection is a %T", connection)
	}
	return secured.ConnectionState().PeerCertificates[0].SerialNumber
}
