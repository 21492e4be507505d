package app

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/counters"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/k1s0"
	"github.com/weirhq/weir/pkg/ruleset"
)

// envoyproxyService is what gRPC health checks of envoyproxy/ratelimit ask for.
const envoyproxyService = "ratelimit"

// healthEvery is how often gRPC health follows what server.ready_needs names.
const healthEvery = time.Second

var (
	errNoRulesYet = errors.New("no valid set of rules has been loaded yet")
	errNoDomain   = errors.New("there are no rules for any domain")
)

// needs adds what server.ready_needs names to what must be right before the replica is ready.
func (f *fronts) needs(limiter *engine.Limiter, rules *ruleset.Set, servers []*counters.Server) {
	needed := f.app.config.Server.ReadyNeeds
	if slices.Contains(needed, config.NeedFirstRules) {
		f.ready.add("first_rules", true, func(context.Context) error {
			select {
			case <-rules.Loaded():
				return nil
			default:
				return errNoRulesYet
			}
		})
	}
	if slices.Contains(needed, config.NeedRules) {
		f.ready.add("any_rules", true, func(context.Context) error {
			if table := limiter.Table(); table == nil || len(table.Domains()) == 0 {
				return errNoDomain
			}
			return nil
		})
	}
	for _, server := range servers {
		f.ready.add(server.Name, slices.Contains(needed, config.NeedRedis), server.Ping)
	}
}

// followReadiness keeps gRPC health in step with readiness until ctx ends, if that may change by anything but a drain.
func (f *fronts) followReadiness(ctx context.Context) {
	if len(f.app.config.Server.ReadyNeeds) == 0 {
		return
	}
	ticks := time.NewTicker(healthEvery)
	defer ticks.Stop()
	for {
		f.showReadiness(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// showReadiness sets gRPC health, which after a drain has begun takes no status any more.
func (f *fronts) showReadiness(ctx context.Context) {
	status := healthpb.HealthCheckResponse_SERVING
	if ready, _ := f.ready.report(ctx); !ready {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	if ctx.Err() == nil {
		f.setHealth(status)
	}
}

func (f *fronts) setHealth(status healthpb.HealthCheckResponse_ServingStatus) {
	services := []string{"", envoy.ServiceName, k1s0.ServiceName}
	if f.app.config.Server.EnvoyproxyEndpoints {
		services = append(services, envoyproxyService)
	}
	for _, service := range services {
		f.health.SetServingStatus(service, status)
	}
}

// healthcheck answers /healthcheck as envoyproxy/ratelimit does: 200 and OK, or 500.
func (r *readiness) healthcheck(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if ready, _ := r.report(request.Context()); !ready {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("OK"))
}
