package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/weirhq/weir/pkg/auth"
	ratelimitv1 "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

// Options say where the server is and how it is called. Address is required.
type Options struct {
	// Address is host:port, unix:PATH, or another target of gRPC.
	Address string
	// TLS, if not nil, encrypts the connection.
	TLS *tls.Config
	// Token returns the bearer token of calls that need a role, and is asked before each of them. nil: none. Check and Peek
	// need no role and send none.
	Token func(context.Context) (string, error)
	// PlaintextToken allows to send a token without TLS to another machine, where something else protects the network.
	PlaintextToken bool

	// Timeout bounds each call but Check, all its attempts together. 0: 5 s.
	Timeout time.Duration
	// CheckTimeout bounds each Check. 0: 100 ms. A deadline of the context that is nearer counts.
	CheckTimeout time.Duration
	// Retries bounds how often a call is tried again when the server was not there. Only calls that change nothing are, and
	// checks with a RequestID, which are charged once. 0: 2; negative: never.
	Retries int

	// Dial are further options of the connection, for tracing and other interceptors.
	Dial []grpc.DialOption
}

// ErrOptions is wrapped by every error of New.
var ErrOptions = errors.New("invalid client settings")

// StaticToken is a Token that never changes.
func StaticToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// Client calls the k1s0 API of a weir server over one connection, which is made anew whenever it breaks. It is safe for
// concurrent use.
type Client struct {
	options    Options
	connection *grpc.ClientConn
	service    ratelimitv1.RateLimitServiceClient
	authorized []grpc.CallOption
}

var _ Checker = (*Client)(nil)

const (
	// keepaliveTime is after which silence a connection that is in use is tested, and keepaliveTimeout how long the test may
	// take: a server that vanished is noticed then, and not when TCP gives up.
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 5 * time.Second
	// retryPause is the ceiling of the random pause before the first retry; it doubles.
	retryPause = 50 * time.Millisecond
)

// New returns a Client and begins to connect. The error wraps ErrOptions: a server that is away is none. Close must be
// called in the end.
func New(options Options) (*Client, error) {
	if options.Address == "" {
		return nil, fmt.Errorf("%w: Address is empty: write host:port or unix:PATH", ErrOptions)
	}
	if options.Timeout < 0 || options.CheckTimeout < 0 {
		return nil, fmt.Errorf("%w: a timeout is negative", ErrOptions)
	}
	if options.Token != nil && options.TLS == nil && !options.PlaintextToken && !auth.IsLoopback(options.Address) {
		return nil, fmt.Errorf("%w: the token would go to %s in the clear: use TLS, or allow it with PlaintextToken where the network itself is protected",
			ErrOptions, options.Address)
	}
	setDefault(&options.Timeout, 5*time.Second)
	setDefault(&options.CheckTimeout, 100*time.Millisecond)
	setDefault(&options.Retries, 2)

	transport := insecure.NewCredentials()
	if options.TLS != nil {
		transport = credentials.NewTLS(options.TLS)
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithUserAgent("weir-client"),
		grpc.WithDisableServiceConfig(), // what DNS says does not decide about retries
	}
	connection, err := grpc.NewClient(options.Address, append(dial, options.Dial...)...)
	if err != nil {
		return nil, fmt.Errorf("%w: Address %q: %w: write host:port or unix:PATH", ErrOptions, options.Address, err)
	}
	connection.Connect()
	c := &Client{options: options, connection: connection, service: ratelimitv1.NewRateLimitServiceClient(connection)}
	if options.Token != nil {
		c.authorized = []grpc.CallOption{grpc.PerRPCCredentials(bearer(options.Token))}
	}
	return c, nil
}

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.connection.Close() }

// Connected waits until the connection is there. The error wraps ErrUnavailable and ctx's.
func (c *Client) Connected(ctx context.Context) error {
	for {
		state := c.connection.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.Shutdown:
			return fmt.Errorf("%w: the client is closed", ErrUnavailable)
		case connectivity.Idle:
			c.connection.Connect()
		case connectivity.Connecting, connectivity.TransientFailure:
		}
		if !c.connection.WaitForStateChange(ctx, state) {
			return fmt.Errorf("%w: no connection to %s: %w", ErrUnavailable, c.options.Address, ctx.Err())
		}
	}
}

// bearer sends a token with a call.
type bearer func(context.Context) (string, error)

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b(ctx)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. New has decided already.
func (bearer) RequireTransportSecurity() bool { return false }

// call makes one call within the timeout; safe tells that it may be made several times.
func call[Request, Reply any](
	ctx context.Context, c *Client, safe bool, request Request, method func(context.Context, Request, ...grpc.CallOption) (Reply, error),
) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	retries := 0
	if safe {
		retries = c.options.Retries
	}
	return attempt(ctx, retries, request, method, c.authorized...)
}

// attempt makes a call, and again while the server is not there, at most 1+retries times.
func attempt[Request, Reply any](
	ctx context.Context, retries int, request Request, method func(context.Context, Request, ...grpc.CallOption) (Reply, error),
	options ...grpc.CallOption,
) (Reply, error) {
	for tried := 0; ; tried++ {
		reply, err := method(ctx, request, options...)
		if err == nil {
			return reply, nil
		}
		err = newError(err)
		if tried >= retries || !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return reply, err
		}
		if sleep(ctx, rand.N(retryPause<<min(tried, 10))+1) != nil {
			return reply, err // what went wrong tells more than that time is up
		}
	}
}
