package fastgrpc

import (
	"context"

	"google.golang.org/grpc/codes"
)

// Call is one call of a method.
type Call struct {
	// Request is the serialized message. It is valid until the handler returns.
	Request []byte
	// Header is the value of the field Options.KeepHeader, empty if the request has none.
	Header string
	// Reply is what the serialized answer is appended to. It is sent if Code is OK.
	Reply []byte
	// Code is codes.OK when the handler is called.
	Code codes.Code
	// Message tells the client why Code is not OK.
	Message string
}

// Handler answers calls, all of them, in place. Its context ends by the deadline of the calls (those of one batch have nearly
// the same one, or none). It is called by many goroutines at once.
type Handler func(ctx context.Context, calls []Call)

// Method is what the server answers.
type Method struct {
	// Path is /package.Service/Method.
	Path string
	// Handler answers its calls.
	Handler Handler
	// Waits says that the handler may wait for something. The calls of other methods are answered before, and the connection
	// goes on being read.
	Waits bool
}
