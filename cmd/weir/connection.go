package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/client"
)

// The environment of the commands that ask a server. They do not begin with WEIR_, which is for the settings of the server:
// it would refuse to start beside them.
const (
	serverVariable = "WEIRCTL_SERVER"
	tokenVariable  = "WEIRCTL_TOKEN"
)

const defaultServer = "localhost:50051"

// transportOptions say how a server is reached, for every command that calls one.
type transportOptions struct {
	timeout            time.Duration
	tls                bool
	caFile, serverName string
	certFile, keyFile  string
}

func (o *transportOptions) flags(command *cobra.Command, host string) {
	flags := command.Flags()
	flags.DurationVar(&o.timeout, "timeout", 5*time.Second, "how long to wait for each answer")
	flags.BoolVar(&o.tls, "tls", false, "connect with TLS")
	flags.StringVar(&o.caFile, "ca", "", "PEM `FILE` of the certificate authorities to trust (default: the system's)")
	flags.StringVar(&o.serverName, "server-name", "", "`NAME` that the server's certificate must have (default: "+host+"'s host)")
	flags.StringVar(&o.certFile, "cert", "", "PEM `FILE` of the client certificate")
	flags.StringVar(&o.keyFile, "key", "", "PEM `FILE` of the client certificate's key")
}

// config returns how to connect with TLS, nil for without.
func (o *transportOptions) config() (*tls.Config, error) {
	if o.timeout <= 0 {
		return nil, fmt.Errorf("--timeout %v: write a time above 0, such as 5s", o.timeout)
	}
	if !o.tls {
		if o.caFile != "" || o.certFile != "" || o.keyFile != "" || o.serverName != "" {
			return nil, errors.New("--ca, --cert, --key and --server-name need --tls")
		}
		return nil, nil
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.serverName}
	if o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca %s: no PEM certificate in it", o.caFile)
		}
	}
	if (o.certFile == "") != (o.keyFile == "") {
		return nil, errors.New("--cert and --key go together")
	}
	if o.certFile != "" {
		pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert %s, --key %s: %w", o.certFile, o.keyFile, err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

// connection is what the commands of the k1s0 API have in common.
type connection struct {
	transportOptions
	server         string
	tokenFile      string
	plaintextToken bool
}

func (c *connection) flags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&c.server, "server", "", "`ADDRESS` of the server's gRPC port: host:port or unix:PATH (default $"+serverVariable+", "+defaultServer+")")
	flags.StringVar(&c.tokenFile, "token-file", "", "`FILE` with the bearer token (default: $"+tokenVariable+" is the token)")
	flags.BoolVar(&c.plaintextToken, "plaintext-token", false, "send the token without TLS to another machine too")
	c.transportOptions.flags(command, "ADDRESS")
}

// address is the server's, by flag, environment or default.
func (c *connection) address() string {
	if c.server != "" {
		return c.server
	}
	if address := os.Getenv(serverVariable); address != "" {
		return address
	}
	return defaultServer
}

// maxTokenFile bounds what is read of a token file.
const maxTokenFile = auth.MaxToken + 2

func (c *connection) token() (string, error) {
	if c.tokenFile == "" {
		return strings.TrimSpace(os.Getenv(tokenVariable)), nil
	}
	file, err := os.Open(c.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case len(text) > maxTokenFile:
		return "", fmt.Errorf("--token-file %s: it is longer than a token can be (%d bytes)", c.tokenFile, auth.MaxToken)
	case token == "":
		return "", fmt.Errorf("--token-file %s: it is empty: put the token into it", c.tokenFile)
	case strings.ContainsAny(token, " \t\r\n"):
		return "", fmt.Errorf("--token-file %s: it has more than one word: put the token alone into it", c.tokenFile)
	}
	return token, nil
}

// with calls use with a client, and says of its errors what to do about them.
func (c *connection) with(ctx context.Context, use func(context.Context, *client.Client) error) error {
	settings, err := c.config()
	if err != nil {
		return err
	}
	token, err := c.token()
	if err != nil {
		return err
	}
	options := client.Options{Address: c.address(), TLS: settings, Timeout: c.timeout, PlaintextToken: c.plaintextToken}
	if token != "" {
		options.Token = client.StaticToken(token)
		if settings == nil && !c.plaintextToken && !auth.IsLoopback(options.Address) {
			return fmt.Errorf("the token would go to %s in the clear: connect with --tls, or add --plaintext-token where the network itself is protected",
				options.Address)
		}
	}
	server, err := client.New(options)
	if err != nil {
		return fmt.Errorf("server %q: write host:port or unix:PATH: %w", options.Address, err)
	}
	defer func() { _ = server.Close() }()
	return c.explain(use(ctx, server))
}

// explain adds the way out to an error of the API where that is one of the command line's.
func (c *connection) explain(err error) error {
	var hint string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer within %v: try again, or allow it more time with --timeout: %w", c.address(), c.timeout, err)
	case errors.Is(err, client.ErrUnavailable) && !answered(err):
		return fmt.Errorf("%s is not available: %w: is weir serving there? Name its gRPC port with --server", c.address(), err)
	case errors.Is(err, client.ErrUnauthenticated):
		hint = "give a token with --token-file or " + tokenVariable
	case errors.Is(err, client.ErrForbidden):
		hint = "use a token of a higher role"
	case errors.Is(err, client.ErrNotFound):
		hint = "'weir rules list' shows those that there are"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}

// answered tells whether an error is the server's own word, and not that of the way to it.
func answered(err error) bool {
	var told *client.Error
	return errors.As(err, &told) && told.Reason != ""
}
