package client

import (
	"context"
	"net/http"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Call is one request to a service, over HTTP or gRPC, as the functions of GuardOptions see it. It is valid only until they
// return.
type Call struct {
	Context context.Context
	// HTTP is the request, nil over gRPC.
	HTTP *http.Request
	// Method is the full gRPC method (/package.Service/Method), empty over HTTP.
	Method string

	peer     string
	metadata metadata.MD
}

// httpCall describes a request to a handler.
func httpCall(r *http.Request) Call {
	return Call{Context: r.Context(), HTTP: r, peer: r.RemoteAddr}
}

// grpcCall describes a call of a method, from the context of its handler.
func grpcCall(ctx context.Context, method string) Call {
	c := Call{Context: ctx, Method: method}
	c.metadata, _ = metadata.FromIncomingContext(ctx)
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		c.peer = p.Addr.String()
		if p.Addr.Network() == "unix" {
			c.peer = unixPeer
		}
	}
	return c
}

// Header returns all values of a header field or of a gRPC metadata key, in the order in which they came. The caller must not
// change them.
func (c *Call) Header(name string) []string {
	if c.HTTP != nil {
		return c.HTTP.Header.Values(name)
	}
	return c.metadata.Get(name)
}

// Peer is the address of the other end of the connection, "HOST:PORT", or "@" for a unix socket: a proxy's, if there is
// one. ByAddress finds the client's.
func (c *Call) Peer() string { return c.peer }

// unixPeer is what net/http has as RemoteAddr for a client without a name.
const unixPeer = "@"
