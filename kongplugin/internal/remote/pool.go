// Package remote asks a weir server to decide, over gRPC. All instances in the process that name the same server share one
// connection to it, kept alive.
package remote

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/weirhq/weir/kongplugin/internal/settings"
	"github.com/weirhq/weir/pkg/tlsfile"
)

// Pool holds the connections of the process. The zero value with a Logger is ready; it is safe for concurrent use.
type Pool struct {
	Logger *slog.Logger

	mu      sync.Mutex
	targets map[target]*shared
}

// target is what connections are told apart by.
type target struct {
	address                     string
	ssl, verify                 bool
	serverName, ca, cert, keyed string
}

// shared is a connection and how many use it.
type shared struct {
	target  target
	conn    *grpc.ClientConn
	users   int
	breaker breaker
}

// Server returns a decider that asks the server of the settings. It does not wait for it.
func (p *Pool) Server(s *settings.Settings) (*Decider, error) {
	g := &s.GRPC
	want := target{address: "unix:" + g.Socket}
	if g.Socket == "" {
		// dns: as opposed to passthrough, a name's further addresses are tried, and asked for again when one is gone.
		want.address = "dns:///" + net.JoinHostPort(g.Host, strconv.Itoa(g.Port))
	}
	if g.SSL {
		want.ssl, want.verify, want.serverName, want.ca, want.cert, want.keyed = true, g.SSLVerify, g.ServerName, g.CAFile, g.CertFile, g.KeyFile
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.targets[want]
	if c == nil {
		conn, err := p.dial(want)
		if err != nil {
			return nil, fmt.Errorf("grpc: %w", err)
		}
		c = &shared{target: want, conn: conn}
		if p.targets == nil {
			p.targets = make(map[target]*shared)
		}
		p.targets[want] = c
		conn.Connect()
	}
	c.users++
	return newDecider(p, c, g.Timeout()), nil
}

func (p *Pool) release(c *shared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(p.targets, c.target)
		if err := c.conn.Close(); err != nil {
			p.Logger.Warn("a connection to weir was not closed", "error", err)
		}
	}
}

// Len is how many connections there are.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.targets)
}

func (p *Pool) dial(t target) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if t.ssl {
		client, err := tlsfile.NewClient(tlsfile.ClientOptions{
			CAFile: t.ca, CertFile: t.cert, KeyFile: t.keyed, ServerName: t.serverName, Logger: p.Logger,
		})
		if err != nil {
			return nil, err
		}
		transport = &following{client: client, verify: t.verify, name: t.serverName}
	}
	return grpc.NewClient(t.address,
		grpc.WithTransportCredentials(transport),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0), // the first request after a quiet night must not wait for a connection
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		// A server that was away is found again within a second.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 500 * time.Millisecond,
		}),
		grpc.WithUserAgent("weir-ratelimit"),
	)
}

// following are TLS credentials by files that are followed: each handshake uses them as they are then.
type following struct {
	client *tlsfile.Client
	verify bool
	name   string
}

var _ credentials.TransportCredentials = (*following)(nil)

func (f *following) now() credentials.TransportCredentials {
	config := f.client.Config()
	config.InsecureSkipVerify = !f.verify
	config.MinVersion = tls.VersionTLS12
	return credentials.NewTLS(config)
}

// ClientHandshake protects a connection.
func (f *following) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return f.now().ClientHandshake(ctx, authority, raw)
}

// ServerHandshake is not for clients.
func (f *following) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return f.now().ServerHandshake(raw)
}

// Info says that it is TLS.
func (f *following) Info() credentials.ProtocolInfo { return f.now().Info() }

// Clone returns credentials by the same files.
func (f *following) Clone() credentials.TransportCredentials { copied := *f; return &copied }

// OverrideServerName is deprecated by gRPC, and set by ClientOptions.ServerName here.
func (f *following) OverrideServerName(string) error { return nil }
