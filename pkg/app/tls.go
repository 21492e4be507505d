package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"google.golang.org/grpc/credentials"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/tlsfile"
)

// grpcTLS returns what protects the gRPC port, nil if nothing does.
func (a *app) grpcTLS() (credentials.TransportCredentials, error) {
	if !a.config.TLS.Enabled() {
		return nil, nil
	}
	settings, err := a.serverTLS("grpc", true, "h2")
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(settings), nil
}

// httpTLS returns what protects the HTTP port, nil if nothing does.
func (a *app) httpTLS() (*tls.Config, error) {
	if !a.config.TLS.Enabled() || !a.config.TLS.HTTP {
		return nil, nil
	}
	return a.serverTLS("http", a.config.TLS.HTTPClientCerts, "h2", "http/1.1")
}

func (a *app) serverTLS(use string, clientCerts bool, protocols ...string) (*tls.Config, error) {
	files := &a.config.TLS
	options := tlsfile.ServerOptions{
		CertFile: files.CertFile, KeyFile: files.KeyFile,
		NextProtos: protocols,
		CheckEvery: files.ReloadCheckEvery,
		Logger:     a.logger.With("component", "tls", "use", use),
		OnLoad:     func(leaf *x509.Certificate) { a.metrics.CertificateLoaded(use, leaf.NotAfter) },
	}
	if clientCerts {
		options.ClientCAFile, options.ClientNames = files.ClientCAFile, files.ClientNames
	}
	settings, err := tlsfile.Server(options)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return settings, nil
}

// redisTLS returns what protects each new connection to a Redis, nil if nothing does. It follows the files.
func (a *app) redisTLS(section string, settings *config.RedisTLS) (func() *tls.Config, error) {
	if !settings.Enabled {
		return nil, nil
	}
	client, err := tlsfile.NewClient(tlsfile.ClientOptions{
		CAFile: settings.CAFile, CertFile: settings.CertFile, KeyFile: settings.KeyFile, ServerName: settings.ServerName, SkipNameCheck: settings.SkipNameCheck,
		Logger: a.logger.With("component", "tls", "use", section),
		OnLoad: func(leaf *x509.Certificate) { a.metrics.CertificateLoaded(section, leaf.NotAfter) },
	})
	if err != nil {
		return nil, fmt.Errorf("%s.tls: %w", section, err)
	}
	return client.Config, nil
}
