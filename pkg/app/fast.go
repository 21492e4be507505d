package app

import (
	"cmp"
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/fastgrpc"
)

// fastFront answers what Envoy asks, and nothing else.
type fastFront struct {
	server   *fastgrpc.Server
	listener net.Listener
}

// openFast opens the listeners of the fast front: its port, unless that is turned off, and its socket, if it has one.
func (a *app) openFast(ctx context.Context, f *fronts, service *envoy.Service) error {
	settings := &a.config.Server
	if !settings.Fast.Enabled && settings.Fast.Socket == "" {
		return nil
	}
	options := a.fastOptions()
	methods := []fastgrpc.Method{
		{Path: envoy.MethodPath, Handler: rateLimits(service), Waits: a.config.Redis.Enabled()},
		{Path: healthpb.Health_Check_FullMethodName, Handler: healthChecks(f.health)},
		{Path: healthpb.Health_Watch_FullMethodName, Handler: unimplemented("this port has no streams: use Check, or server.grpc_port")},
	}
	if settings.Fast.Socket != "" {
		listener, err := listenUnix(ctx, settings.Fast.Socket, "server.fast.socket")
		if err != nil {
			return err
		}
		a.cleanup.add(func() { _ = listener.Close() })
		f.fast = append(f.fast, fastFront{fastgrpc.New(options, methods...), listener})
	}
	if !settings.Fast.Enabled {
		return nil
	}
	if a.config.TLS.Enabled() {
		var err error
		if options.TLS, err = a.serverTLS("fast", true, "h2"); err != nil {
			return err
		}
	}
	listener, err := listenTCP(ctx, cmp.Or(settings.GRPCHost, settings.Host), settings.FastPort, "server.fast_port")
	if err != nil {
		return err
	}
	a.cleanup.add(func() { _ = listener.Close() })
	f.fast = append([]fastFront{{fastgrpc.New(options, methods...), listener}}, f.fast...)
	return nil
}

func (a *app) fastOptions() fastgrpc.Options {
	fast, shared := &a.config.Server.Fast, &a.config.Server.GRPC
	metrics := a.metrics.Methods(envoy.MethodPath, healthpb.Health_Check_FullMethodName, healthpb.Health_Watch_FullMethodName)
	return fastgrpc.Options{
		MaxConnections:        fast.MaxConnections,
		MaxMessageBytes:       fast.MaxMessageBytes,
		MaxConcurrentStreams:  uint32(shared.MaxConcurrentStreams), //nolint:gosec // bounded by its setting
		KeepaliveTime:         shared.KeepaliveTime,
		KeepaliveTimeout:      shared.KeepaliveTimeout,
		MaxConnectionIdle:     shared.MaxConnectionIdle,
		MaxConnectionAge:      shared.MaxConnectionAge,
		MaxConnectionAgeGrace: shared.MaxConnectionAgeGrace,
		KeepHeader:            a.traceHeader(),
		Answered: func(path string, calls []fastgrpc.Call, elapsed time.Duration) {
			method := metrics[path]
			for i := range calls {
				method.Ended(calls[i].Code, elapsed)
				a.called(path, calls[i].Code, elapsed)
			}
		},
		Panicked: func(value any, stack []byte) { a.panicked("fast", value, stack) },
	}
}

// rateLimits has a batch of calls decided at once.
func rateLimits(service *envoy.Service) fastgrpc.Handler {
	pool := sync.Pool{New: func() any {
		b := new(rateLimitBatch)
		b.early = b.wait
		return b
	}}
	return func(ctx context.Context, calls []fastgrpc.Call) {
		b := pool.Get().(*rateLimitBatch) //nolint:forcetypeassert // the pool holds nothing else
		b.context, b.calls = ctx, calls
		for i := range calls {
			call := &calls[i]
			b.asked = append(b.asked, envoy.Call{Request: call.Request, Traceparent: call.Header, Cancelled: call.Cancelled, Reply: call.Reply})
		}
		service.ServeEarly(ctx, b.asked, b.early)
		b.deliver()
		clear(b.asked)
		b.context, b.calls, b.asked = nil, nil, b.asked[:0]
		pool.Put(b)
	}
}

// rateLimitBatch is what one call of the handler needs.
type rateLimitBatch struct {
	context context.Context //nolint:containedctx // for as long as the handler's call
	calls   []fastgrpc.Call
	asked   []envoy.Call
	early   func() bool // wait, made once
}

// wait sends what is decided before the store is waited for.
func (b *rateLimitBatch) wait() bool {
	b.deliver()
	return fastgrpc.Wait(b.context)
}

// deliver gives the calls the answers that are new.
func (b *rateLimitBatch) deliver() {
	for i := range b.asked {
		if asked, call := &b.asked[i], &b.calls[i]; asked.Done && !call.Done {
			call.Reply, call.Code, call.Message, call.Done = asked.Reply, asked.Code, asked.Message, true
		}
	}
}

// healthChecks answers as the health service of the gRPC port does.
func healthChecks(checks *health.Server) fastgrpc.Handler {
	return func(ctx context.Context, calls []fastgrpc.Call) {
		for i := range calls {
			call := &calls[i]
			request := new(healthpb.HealthCheckRequest)
			if err := proto.Unmarshal(call.Request, request); err != nil {
				call.Code, call.Message = codes.Internal, "the HealthCheckRequest cannot be read"
				continue
			}
			reply, err := checks.Check(ctx, request)
			if err == nil {
				call.Reply, err = proto.MarshalOptions{}.MarshalAppend(call.Reply, reply)
			}
			if err != nil {
				call.Code, call.Message = status.Code(err), status.Convert(err).Message()
			}
		}
	}
}

func unimplemented(message string) fastgrpc.Handler {
	return func(_ context.Context, calls []fastgrpc.Call) {
		for i := range calls {
			calls[i].Code, calls[i].Message = codes.Unimplemented, message
		}
	}
}
