package tlsfile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"
)

// ClientOptions name the files of a client. The zero value trusts the system's CAs and shows no certificate.
type ClientOptions struct {
	// CAFile, if not empty, holds the CAs that the server's certificate must come from, instead of the system's.
	CAFile string
	// CertFile and KeyFile, if not empty, hold the certificate that the client shows, and its key.
	CertFile, KeyFile string
	// ServerName is the name that the server's certificate must have. Empty: the host that is dialled.
	ServerName string
	// SkipNameCheck accepts a certificate of the CAs whatever its names are.
	SkipNameCheck bool
	// NextProtos are the protocols offered by ALPN.
	NextProtos []string
	// CheckEvery is how often, at most, the files are looked at. 0: DefaultCheckEvery.
	CheckEvery time.Duration
	// Logger is told of new files and of those that cannot be used. Nil: nothing is logged.
	Logger *slog.Logger
	// OnLoad is called with the leaf of each client certificate that comes into use. It must be quick.
	OnLoad func(leaf *x509.Certificate)
}

// Client makes TLS connections by files that it follows. Safe for concurrent use.
type Client struct{ files *source[clientFiles] }

// clientFiles is what one state of the files says.
type clientFiles struct {
	config *tls.Config
	pair   *tls.Certificate // what the client shows; nil: nothing
}

// NewClient returns a Client. The error wraps ErrFiles.
func NewClient(options ClientOptions) (*Client, error) {
	paths := []string{options.CAFile, options.CertFile, options.KeyFile}
	files, err := newSource(paths, options.CheckEvery, options.Logger, func() (*clientFiles, error) { return options.load() })
	if err != nil {
		return nil, err
	}
	return &Client{files}, nil
}

// Config returns a configuration, TLS 1.2 or newer, that is the caller's. The certificate that it shows follows the files,
// the CAs that it trusts are those of now: to follow these too ask for a configuration for each connection, or dial by
// DialContext.
func (c *Client) Config() *tls.Config {
	files := c.files.get()
	config := files.config.Clone()
	if files.pair != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.files.get().pair, nil }
	}
	return config
}

// DialContext connects to address and does the handshake, within ctx. The server's certificate must have the name of
// ClientOptions.ServerName, or else the host of address.
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := tls.Dialer{Config: c.Config()}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s with TLS: %w", address, err)
	}
	return conn, nil
}

func (o *ClientOptions) load() (*clientFiles, error) {
	files := &clientFiles{config: &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: o.ServerName,
		NextProtos: slices.Clone(o.NextProtos),
	}}
	var err error
	if o.CAFile != "" {
		if files.config.RootCAs, err = loadCAs(o.CAFile); err != nil {
			return nil, err
		}
	}
	if o.SkipNameCheck {
		checkChainAlone(files.config)
	}
	if o.CertFile != "" || o.KeyFile != "" {
		if files.pair, err = loadPair(o.CertFile, o.KeyFile); err != nil {
			return nil, err
		}
		if o.OnLoad != nil {
			o.OnLoad(files.pair.Leaf)
		}
	}
	return files, nil
}
