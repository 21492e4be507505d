package envoy

import (
	"context"
	"sync"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ServiceName and MethodPath are what health checks and other fronts know the service by.
const (
	ServiceName = "envoy.service.ratelimit.v3.RateLimitService"
	MethodPath  = rlsv3.RateLimitService_ShouldRateLimit_FullMethodName
)

// Register adds the service to a grpc-go server, which must have been made with ServerOption. Reflection describes the
// service by the generated descriptors.
func Register(registrar grpc.ServiceRegistrar, s *Service) {
	registrar.RegisterService(&description, server(s))
}

// ServerOption makes a grpc-go server read and write this package's messages by themselves and all others, those of health and
// reflection for example, as usual.
func ServerOption() grpc.ServerOption { return grpc.ForceServerCodecV2(Codec()) }

var description = grpc.ServiceDesc{
	ServiceName: ServiceName,
	HandlerType: (*shouldRateLimiter)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: handle}},
	Metadata:    rlsv3.File_envoy_service_ratelimit_v3_rls_proto.Path(),
}

type shouldRateLimiter interface {
	shouldRateLimit(ctx context.Context, e *exchange) (*reply, error)
}

// request is a serialized RateLimitRequest. The buffer behind it is grpc-go's, kept by a reference until release.
type request struct{ buffer mem.Buffer }

func (r *request) release() {
	if r.buffer != nil {
		r.buffer.Free()
		r.buffer = nil
	}
}

// reply is a serialized RateLimitResponse in a buffer of replies, which the codec hands to grpc-go, and grpc-go puts back.
type reply []byte

// exchange is what one call needs while it is handled, kept to be used again.
type exchange struct {
	request request
	calls   [1]Call
	limiter shouldRateLimiter
	info    grpc.UnaryServerInfo
	run     grpc.UnaryHandler // asks the limiter
}

var exchanges = sync.Pool{New: func() any {
	e := new(exchange)
	e.run = func(ctx context.Context, _ any) (any, error) { return result(e.limiter.shouldRateLimit(ctx, e)) }
	return e
}}

func (e *exchange) release() {
	e.request.release()
	e.calls[0], e.limiter, e.info = Call{}, nil, grpc.UnaryServerInfo{}
	exchanges.Put(e)
}

func handle(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	e := exchanges.Get().(*exchange) //nolint:forcetypeassert // the pool holds nothing else
	defer e.release()
	if err := decode(&e.request); err != nil {
		return nil, err
	}
	e.limiter = srv.(shouldRateLimiter) //nolint:forcetypeassert // grpc-go has checked it by HandlerType
	if interceptor == nil {
		return e.run(ctx, &e.request)
	}
	e.info = grpc.UnaryServerInfo{Server: srv, FullMethod: MethodPath}
	return interceptor(ctx, &e.request, &e.info, e.run)
}

// result keeps a nil reply from becoming an interface that is not nil.
func result(out *reply, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return out, nil
}

type grpcServer struct{ *Service }

func server(s *Service) grpcServer { return grpcServer{s} }

func (s grpcServer) shouldRateLimit(ctx context.Context, e *exchange) (*reply, error) {
	data := replies.Get(0)
	call := &e.calls[0]
	call.Reply = (*data)[:0]
	if s.options.Tracer != nil {
		if values := metadata.ValueFromIncomingContext(ctx, TraceHeader); len(values) > 0 {
			call.Traceparent = values[0]
		}
	}
	if e.request.buffer != nil {
		call.Request = e.request.buffer.ReadOnlyData()
	}
	s.Serve(ctx, e.calls[:])
	if call.Code != codes.OK {
		replies.Put(data)
		return nil, status.Error(call.Code, call.Message)
	}
	*data = call.Reply
	return (*reply)(data), nil
}
