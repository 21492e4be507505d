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
	// HTTPClientCerts makes HTTP clients show a certificate too. It needs ClientCAFile. Kubernetes' probes have none.
	HTTPClientCerts bool
	// CheckEvery is how often, at most, the files are looked at. 0: DefaultCheckEvery.
	CheckEvery time.Duration
	// Logger is told of new files and of those that cannot be used. Nil: nothing is logged.
	Logger *slog.Logger
	// OnLoad is called with the leaf of each certificate that comes into use, the first one included. It must be quick.
	OnLoad func(leaf *x509.Certificate)
}

// Server makes the configurations of listeners that follow their files. Safe for concurrent use.
type Server struct{ files *source[serverConfigs] }

// serverConfigs are made from one state of the files.
type serverConfigs struct{ grpc, http *tls.Config }

// NewServer returns a Server. The error wraps ErrFiles.
func NewServer(options ServerOptions) (*Server, error) {
	if options.ClientCAFile == "" && (len(options.ClientNames) > 0 || options.HTTPClientCerts) {
		return nil, fmt.Errorf("%w: clients' certificates are asked for without a file of CAs: set it, or any client could make its own", ErrFiles)
	}
	paths := []string{options.CertFile, options.KeyFile, options.ClientCAFile}
	files, err := newSource(paths, options.CheckEvery, options.Logger, func() (*serverConfigs, error) { return options.load() })
	if err != nil {
		return nil, err
	}
	return &Server{files}, nil
}

// The protocols that are offered by ALPN.
var (
	grpcProtocols = []string{"h2"}
	httpProtocols = []string{"h2", "http/1.1"}
)

// GRPC returns the configuration of a gRPC listener: HTTP/2 alone, and clients' certificates if there are CAs for them.
func (s *Server) GRPC() *tls.Config {
	return following(grpcProtocols, func() *tls.Config { return s.files.get().grpc })
}

// HTTP returns the configuration of an HTTP listener, which asks for clients' certificates only if the options say so.
func (s *Server) HTTP() *tls.Config {
	return following(httpProtocols, func() *tls.Config { return s.files.get().http })
}

// following returns a configuration that asks for the current one at each handshake.
func following(protocols []string, current func() *tls.Config) *tls.Config {
	config := newConfig(protocols)
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return current(), nil }
	return config
}

// newConfig returns what all servers' configurations have in common. Sessions are not resumed: a client whose CA was
// removed must not come back by one, and gateways keep their connections.
func newConfig(protocols []string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: slices.Clone(protocols), SessionTicketsDisabled: true}
}

func (o *ServerOptions) load() (*serverConfigs, error) {
	pair, err := loadPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, err
	}
	configs := &serverConfigs{newConfig(grpcProtocols), newConfig(httpProtocols)}
	configs.grpc.Certificates = []tls.Certificate{*pair}
	configs.http.Certificates = configs.grpc.Certificates
	if o.ClientCAFile != "" {
		cas, err := loadCAs(o.ClientCAFile)
		if err != nil {
			return nil, err
		}
		o.askClients(configs.grpc, cas)
		if o.HTTPClientCerts {
			o.askClients(configs.http, cas)
		}
	}
	if o.OnLoad != nil {
		o.OnLoad(pair.Leaf)
	}
	return configs, nil
}

// askClients makes clients show a certificate that comes from cas and has an allowed name.
func (o *ServerOptions) askClients(config *tls.Config, cas *x509.CertPool) {
	config.ClientCAs, config.ClientAuth = cas, tls.RequireAndVerifyClientCert
	if len(o.ClientNames) == 0 {
		return
	}
	allowed := slices.Clone(o.ClientNames)
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if !hasName(state.PeerCertificates[0], allowed) {
			return ErrClientName
		}
		return nil
	}
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
