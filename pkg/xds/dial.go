package xds

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// connectTimeout bounds one attempt to connect, the handshake included.
	connectTimeout = 10 * time.Second
	// A control plane that has vanished is found by TCP, within about 50 s, and one that hangs by a ping. Pings more often than
	// every 5 minutes make a gRPC server with its defaults end the connection.
	pingEvery, pingTimeout = 5*time.Minute + 10*time.Second, 20 * time.Second
)

// dial prepares a connection for one stream. Each has one of its own, so that it is made by the certificates of its time.
func (c *Client) dial() (*grpc.ClientConn, error) {
	protection := insecure.NewCredentials()
	if c.options.TLS != nil {
		protection = credentials.NewTLS(c.options.TLS.Config())
	}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 3}}
	return grpc.NewClient(c.options.Server,
		grpc.WithTransportCredentials(protection),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.options.MaxMessageBytes)),
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("weir"),
	)
}
