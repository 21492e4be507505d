package fastgrpc

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
)

// Call is one call of a method.
type Call struct {
	// Request is the serialized message. It is valid until the handler returns.
	Request []byte
	// Header is the value of the field Options.KeepHeader, empty if the request has none.
	Header string
	// Cancelled turns true when nobody waits for the answer any more. Any goroutine may ask until the handler returns.
	Cancelled *atomic.Bool
	// Reply is what the serialized answer is appended to. It is sent if Code is OK.
	Reply []byte
	// Code is codes.OK when the handler is called.
	Code codes.Code
	// Message tells the client why Code is not OK.
	Message string
	// Done is set by a handler that calls Wait, in the calls that are answered by then.
	Done bool

	sent bool // so it must not be answered again
}

// Handler answers calls, all of them, in place. Its context ends by the deadline of the calls (those of one batch have nearly
// the same one, or none). It is called by many goroutines at once.
//
// A handler that waits for something calls Wait before it does, with its context.
type Handler func(ctx context.Context, calls []Call)

// Method is what the server answers.
type Method struct {
	// Path is /package.Service/Method.
	Path string
	// Handler answers its calls.
	Handler Handler
	// Waits says that the handler may call Wait: the calls of other methods are answered before.
	Waits bool
}

// Wait tells that the handler whose context ctx is, or comes from, is about to wait. The answers of calls that are Done are sent,
// and the connection goes on being read. If it returns false, too many handlers of the connection wait already: the handler must
// return, having charged nothing for the calls that are not Done. They are handled again once there is room, unless they are
// cancelled meanwhile.
func Wait(ctx context.Context) bool {
	if d, ok := ctx.Value(deadlineKey{}).(*deadline); ok {
		return d.batch.wait()
	}
	return true
}
