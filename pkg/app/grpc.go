package app

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/k1s0"
)

// How many bytes a client may send ahead.
const (
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20
)

// newGRPC makes a server of everything that weir speaks over gRPC. transport is nil for a listener without TLS.
func (a *app) newGRPC(transport credentials.TransportCredentials, service *envoy.Service, api *k1s0.Service, checks *health.Server) *grpc.Server {
	settings := &a.config.Server.GRPC
	options := []grpc.ServerOption{
		envoy.ServerOption(),
		grpc.MaxRecvMsgSize(settings.MaxMessageBytes),
		// Requests are small: measuring for each how much may be under way, as grpc-go does by itself, is not worth its pings.
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.MaxConcurrentStreams(uint32(settings.MaxConcurrentStreams)), //nolint:gosec // bounded by its setting
		grpc.NumStreamWorkers(uint32(settings.StreamWorkers)),            //nolint:gosec // bounded by its setting
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:                  settings.KeepaliveTime,
			Timeout:               settings.KeepaliveTimeout,
			MaxConnectionIdle:     settings.MaxConnectionIdle,
			MaxConnectionAge:      settings.MaxConnectionAge,
			MaxConnectionAgeGrace: settings.MaxConnectionAgeGrace,
		}),
		// Envoy pings idle connections; a client that does so within the bound is no attacker.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: settings.KeepaliveMinTime, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(a.metrics.UnaryInterceptor(a.logger)),
		grpc.StreamInterceptor(a.metrics.StreamInterceptor(a.logger)),
	}
	if transport != nil {
		options = append(options, grpc.Creds(transport))
	}
	server := grpc.NewServer(a.traceGRPC(options)...)
	envoy.Register(server, service)
	k1s0.Register(server, api)
	healthpb.RegisterHealthServer(server, checks)
	reflection.Register(server)
	return server
}
