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
type Client struct{ files *source[tls.Config] }

// NewClient returns a Client. The error wraps ErrFiles.
func NewClient(options ClientOptions) (*Client, error) {
	paths := []string{options.CAFile, options.CertFile, options.KeyFile}
	files, err := newSource(paths, options.CheckEvery, options.Logger, func() (*tls.Config, error) { return clientConfig(&options) })
	if err != nil {
		return nil, err
	}
	return &Client{files}, nil
}

// Config returns the configuration of the files as they are now, TLS 1.2 or newer. It is the caller's, and does not change:
// ask for one for each connection, or dial by DialContext.
func (c *Client) Config() *tls.Config { return c.files.get().Clone() }

// DialContext connects to address and does the handshake, within ctx. The server's certificate must have the name of
// ClientOptions.ServerName, or else the host of address.
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := tls.Dialer{Config: c.files.get()}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s with TLS: %w", address, err)
	}
	return conn, nil
}

func clientConfig(options *ClientOptions) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: options.ServerName,
		NextProtos: slices.Clone(options.NextProtos),
	}
	var err error
	if options.CAFile != "" {
		if config.RootCAs, err = loadCAs(options.CAFile); err != nil {
			return nil, err
		}
	}
	if options.CertFile != "" || options.KeyFile != "" {
		pair, err := loadPair(options.CertFile, options.KeyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{*pair}
		if options.OnLoad != nil {
			options.OnLoad(pair.Leaf)
		}
	}
	return config, nil
}
