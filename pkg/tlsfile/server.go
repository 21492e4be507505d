package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// ErrClientName ends the handshake with a client whose certificate has none of the allowed names.
var ErrClientName = errors.New("the client's certificate has no allowed name")

// ServerOptions name the files of a server.
type ServerOptions struct {
	// CertFile and KeyFile hold the certificate chain, leaf first, and its key. Required.
	CertFile, KeyFile string
	// ClientCAFile, if not empty, makes clients show a certificate that comes from one of its CAs.
	ClientCAFile string
	// ClientNames, if not empty, are the names of which a client's certificate must have one: a DNS name, URI, address or
	// mail address of its subject alternative names, compared as a whole. It needs ClientCAFile.
	ClientNames []string
	// NextProtos are the protocols offered by ALPN, the preferred one first: "h2" for gRPC.
	NextProtos []string
	// CheckEvery is how often, at most, the files are looked at. 0: DefaultCheckEvery.
	CheckEvery time.Duration
	// Logger is told of new files and of those that cannot be used. Nil: nothing is logged.
	Logger *slog.Logger
	// OnLoad is called with the leaf of each certificate that comes into use, the first one included. It must be quick.
	OnLoad func(leaf *x509.Certificate)
}

// Server returns the configuration of a server that follows its files: TLS 1.2 or newer. Sessions are not resumed, so that
// a client whose CA was removed cannot come back by one. The error wraps ErrFiles.
//
// The configuration may be copied, as grpc's credentials do; its protocols cannot be changed in the copy.
func Server(options ServerOptions) (*tls.Config, error) {
	if len(options.ClientNames) > 0 && options.ClientCAFile == "" {
		return nil, fmt.Errorf("%w: names of clients are set without a file of CAs: set it, or any client could claim a name", ErrFiles)
	}
	paths := []string{options.CertFile, options.KeyFile, options.ClientCAFile}
	files, err := newSource(paths, options.CheckEvery, options.Logger, func() (*tls.Config, error) { return serverConfig(&options) })
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             slices.Clone(options.NextProtos),
		SessionTicketsDisabled: true,
		GetConfigForClient:     func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.get(), nil },
	}, nil
}

func serverConfig(options *ServerOptions) (*tls.Config, error) {
	pair, err := loadPair(options.CertFile, options.KeyFile)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             slices.Clone(options.NextProtos),
		SessionTicketsDisabled: true,
		Certificates:           []tls.Certificate{*pair},
	}
	if options.ClientCAFile != "" {
		if config.ClientCAs, err = loadCAs(options.ClientCAFile); err != nil {
			return nil, err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if len(options.ClientNames) > 0 {
		allowed := slices.Clone(options.ClientNames)
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if !hasName(state.PeerCertificates[0], allowed) {
				return ErrClientName
			}
			return nil
		}
	}
	if options.OnLoad != nil {
		options.OnLoad(pair.Leaf)
	}
	return config, nil
}

// hasName reports whether one of the certificate's subject alternative names is among allowed.
func hasName(certificate *x509.Certificate, allowed []string) bool {
	for _, name := range certificate.DNSNames {
		if slices.Contains(allowed, name) {
			return true
		}
	}
	for _, uri := range certificate.URIs {
		if slices.Contains(allowed, uri.String()) {
			return true
		}
	}
	for _, address := range certificate.IPAddresses {
		if slices.Contains(allowed, address.String()) {
			return true
		}
	}
	return slices.ContainsFunc(certificate.EmailAddresses, func(mail string) bool { return slices.Contains(allowed, mail) })
}
