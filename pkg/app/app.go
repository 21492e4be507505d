package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/fastgrpc"
	"github.com/weirhq/weir/pkg/k1s0"
	"github.com/weirhq/weir/pkg/rawconn"
	"github.com/weirhq/weir/pkg/respond"
	"github.com/weirhq/weir/pkg/stats"
	"github.com/weirhq/weir/pkg/telemetry"
	"github.com/weirhq/weir/pkg/xds"
)

// memoryShare is the part of the memory that becomes GOMEMLIMIT if that is not set.
const memoryShare = 0.9

// Options say what to run.
type Options struct {
	// Config is complete and valid, as config.Load returns it.
	Config *config.Config
	Build  Build
	// Log is where log lines go. Greeting, if not nil, gets what a person wants to know once the server serves: its addresses,
	// and what to try next.
	Log, Greeting io.Writer
	// Notices are told to the operator once, when the server starts.
	Notices []Notice
	// Reload makes the server load its rules again, as for a SIGHUP. nil: never.
	Reload <-chan os.Signal
	// Hurry, when closed, ends a drain at once.
	Hurry <-chan struct{}
}

// Notice is something about a variable of the environment that an operator should know: what takes its place, for example.
type Notice struct {
	Variable, Text string
	// Idle is set where the variable would have no effect anyway, so that only level info has it.
	Idle bool
}

// app is one server while it is built and while it runs.
type app struct {
	Options
	config  *config.Config
	logger  *slog.Logger
	metrics *telemetry.Metrics
	stats   *stats.Stats       // nil: nobody is shown them
	tracing *telemetry.Tracing // nil: off
	cleanup cleanup

	identifiers  *telemetry.Identifiers // how the log shows them
	controlPlane *xds.Client            // that rules come from; nil: none
}

// Run serves until ctx ends, then drains and returns nil. It returns an error if the server cannot start or stops by itself;
// whatever it opened is closed then.
func Run(ctx context.Context, options Options) error {
	a := &app{Options: options, config: options.Config}
	defer a.cleanup.run()
	if err := a.setUpTelemetry(); err != nil {
		return err
	}
	for _, notice := range options.Notices {
		level := slog.LevelWarn
		if notice.Idle {
			level = slog.LevelInfo
		}
		a.logger.Log(ctx, level, "a variable of the environment", "variable", notice.Variable, "note", notice.Text)
	}
	tuneMemory(a.logger, a.config.Runtime.GOGC)

	stores, err := a.openStores()
	if err != nil {
		return err
	}
	limiter := engine.New(stores.store, engine.Options{
		Prefix: a.config.RateLimit.KeyPrefix, DefaultDomain: a.config.Rules.DefaultDomain, Recorder: a.recorder(),
		ShadowMode: a.config.RateLimit.ShadowMode, QuotaMode: a.config.RateLimit.QuotaMode,
		EnvoyKeys: a.config.RateLimit.EnvoyKeys(), EnvoyPrefix: a.config.RateLimit.SharedKeyPrefix,
	})
	rules, err := a.newRules(limiter)
	if err != nil {
		return err
	}
	ruleStore, err := a.followRuleStore(ctx, rules)
	if err != nil {
		return err
	}
	api, err := a.newAPI(limiter, rules, ruleStore)
	if err != nil {
		return err
	}
	fronts, err := a.openFronts(ctx, limiter, api)
	if err != nil {
		return err
	}
	if err := a.serveMetrics(ctx); err != nil {
		return err
	}
	fronts.ready.sources = rules.Sources
	fronts.ready.add("rules", false, rules.Ready)
	if a.controlPlane != nil {
		fronts.ready.add("control_plane", false, a.controlPlane.Ready)
	}
	if ruleStore != nil {
		fronts.ready.add("database", false, rules.StoreReady)
	}
	fronts.needs(limiter, rules, stores.store.Servers)
	if err := a.serveDebug(ctx, limiter); err != nil {
		return err
	}
	fronts.showReadiness(ctx)

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	tasks.Go(func() { rules.Run(background) })
	tasks.Go(func() { fronts.followReadiness(background) })
	tasks.Go(func() {
		for {
			select {
			case <-background.Done():
				return
			case <-options.Reload:
				a.logger.InfoContext(background, "reloading the rules, as asked by a signal")
				rules.Reload()
			}
		}
	})
	defer tasks.Wait()
	defer stop()

	failed := fronts.serve()
	a.greet(fronts, stores, limiter.Table())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		fronts.drain(options.Hurry)
		return nil
	}
}

func (a *app) setUpTelemetry() error {
	level, err := telemetry.ParseLevel(a.config.Log.Level)
	if err != nil {
		return fmt.Errorf("log.level: %w", err)
	}
	a.logger = telemetry.NewLogger(a.Log, telemetry.LogOptions{Level: level, JSON: a.config.Log.Format == config.LogJSON})
	if a.config.Log.Format == config.LogJSON {
		a.logger = a.logger.With("service", a.config.App.Name, "version", a.Build.Version, "environment", a.config.App.Environment)
	}
	if err := a.setUpTracing(); err != nil {
		return err
	}
	a.stats = a.newStats()
	options := telemetry.MetricsOptions{
		MaxRules: a.config.Metrics.MaxRules, MaxValues: a.config.Metrics.MaxValues,
		Version: a.Build.Version, Revision: a.Build.Revision, GoVersion: a.Build.Go,
	}
	if a.stats != nil {
		options.Called = a.called
	}
	a.metrics = telemetry.NewMetrics(options)
	if err := a.showStats(); err != nil {
		return err
	}
	return a.setUpIdentifiers()
}

// tuneMemory lets the heap grow by gogc percent before it is collected, and makes the collector work harder before the process
// is killed for its memory. GOGC and GOMEMLIMIT, if set, win; the runtime heeds a container's processors by itself.
func tuneMemory(logger *slog.Logger, gogc int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gogc)
	}
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare),
		memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	switch {
	case err != nil:
		logger.Debug("no memory limit found", "reason", err)
	case limit > 0:
		logger.Debug("memory limit set", "bytes", limit)
	}
}

func (a *app) panicked(where string, value any, stack []byte) {
	a.metrics.Panicked(where)
	a.logger.Error("a panic was caught: please report it", "where", where, "panic", fmt.Sprint(value), "stack", string(stack))
}

// fronts are the listeners and what serves them.
type fronts struct {
	app      *app
	ready    *readiness
	health   *health.Server
	http     *http.Server
	fast     []fastFront
	grpc     []grpcFront
	httpAddr net.Listener
	draining atomic.Bool
}

type grpcFront struct {
	server   *grpc.Server
	listener net.Listener
}

// openFronts opens every listener, so that a port that is taken ends the start and not a server that seemed to run.
func (a *app) openFronts(ctx context.Context, limiter *engine.Limiter, api *k1s0.Service) (*fronts, error) {
	settings := &a.config.Server
	f := &fronts{app: a, ready: &readiness{}, health: health.NewServer()}
	f.setHealth(healthpb.HealthCheckResponse_SERVING)
	f.ready.add("serving", true, func(context.Context) error {
		if f.draining.Load() {
			return errors.New("the server is shutting down")
		}
		return nil
	})

	service, err := a.envoyService(limiter)
	if err != nil {
		return nil, err
	}
	transport, err := a.grpcTLS()
	if err != nil {
		return nil, err
	}
	if err := a.openFast(ctx, f, service); err != nil {
		return nil, err
	}
	if settings.GRPCPort >= 0 {
		listener, err := listenTCP(ctx, cmp.Or(settings.GRPCHost, settings.Host), settings.GRPCPort, "server.grpc_port")
		if err != nil {
			return nil, err
		}
		a.cleanup.add(func() { _ = listener.Close() })
		f.grpc = append(f.grpc, grpcFront{a.newGRPC(transport, service, api, f.health), listener})
	}
	if settings.GRPCSocket != "" {
		listener, err := listenUnix(ctx, settings.GRPCSocket, "server.grpc_socket")
		if err != nil {
			return nil, err
		}
		a.cleanup.add(func() { _ = listener.Close() })
		f.grpc = append(f.grpc, grpcFront{a.newGRPC(nil, service, api, f.health), listener})
	}
	if f.httpAddr, err = listenTCP(ctx, settings.Host, settings.Port, "server.port"); err != nil {
		return nil, err
	}
	a.cleanup.add(func() { _ = f.httpAddr.Close() })
	f.http = a.newHTTP(f.ready, service, api)
	f.http.TLSConfig, err = a.httpTLS()
	return f, err
}

func (a *app) envoyService(limiter *engine.Limiter) (*envoy.Service, error) {
	options := envoy.Options{
		Problem:  a.config.Envoy.ProblemJSON,
		Metadata: a.config.Envoy.DynamicMetadata, RequestMetadata: a.config.Envoy.RequestMetadata,
		Tracer:   a.tracer(),
		Panicked: func(value any, stack []byte) { a.panicked("envoy", value, stack) },
	}
	if len(a.config.Envoy.ResponseHeaders) > 0 {
		var styles respond.Style
		for _, name := range a.config.Envoy.ResponseHeaders {
			style, err := respond.ParseStyle(name)
			if err != nil {
				return nil, fmt.Errorf("envoy.response_headers: %w", err)
			}
			styles |= style
		}
		shown := respond.Options{Styles: styles, NoRetryAfter: !a.config.Envoy.RetryAfter}
		if styles&respond.Custom != 0 {
			shown.Names = respond.Names(a.config.Envoy.HeaderNames)
		}
		formatter, err := respond.New(shown)
		if err != nil {
			return nil, fmt.Errorf("envoy.response_headers: %w", err)
		}
		options.Headers = formatter
	}
	return envoy.New(limiter, options), nil
}

// serve answers on every listener. The channel gets the error of one that ends by itself.
func (f *fronts) serve() <-chan error {
	failed := make(chan error, len(f.fast)+len(f.grpc)+1)
	for _, front := range f.fast {
		go func() {
			if err := front.server.Serve(front.listener); !errors.Is(err, fastgrpc.ErrServerClosed) {
				failed <- fmt.Errorf("gRPC on %s: %w", front.listener.Addr(), err)
			}
		}()
	}
	for _, front := range f.grpc {
		go func() {
			if err := front.server.Serve(rawconn.Listener(front.listener)); err != nil {
				failed <- fmt.Errorf("gRPC on %s: %w", front.listener.Addr(), err)
			}
		}()
	}
	go func() {
		var err error
		if f.http.TLSConfig != nil {
			err = f.http.ServeTLS(f.httpAddr, "", "")
		} else {
			err = f.http.Serve(f.httpAddr)
		}
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("HTTP on %s: %w", f.httpAddr.Addr(), err)
		}
	}()
	return failed
}

// drain ends service without failing a call: health says so first, then gateways have time to look elsewhere, then the
// calls under way end. Closing hurry skips what is left of that.
func (f *fronts) drain(hurry <-chan struct{}) {
	settings := &f.app.config.Server
	f.app.logger.Info("shutting down: not ready any more, still serving", "delay", settings.DrainDelay)
	f.draining.Store(true)
	f.health.Shutdown()
	wait(settings.DrainDelay, hurry)

	f.app.logger.Info("shutting down: waiting for calls under way", "timeout", settings.DrainTimeout)
	ended := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), settings.DrainTimeout)
	defer cancel()
	go func() {
		defer close(ended)
		var group sync.WaitGroup
		for _, front := range f.fast {
			group.Go(func() { _ = front.server.Shutdown(ctx) })
		}
		for _, front := range f.grpc {
			group.Go(front.server.GracefulStop)
		}
		group.Go(func() { _ = f.http.Shutdown(ctx) })
		group.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		f.app.logger.Warn("calls under way were cut: they took longer than server.drain_timeout", "timeout", settings.DrainTimeout)
	case <-hurry:
		f.app.logger.Warn("calls under way were cut, as asked by a second signal")
	}
	for _, front := range f.fast {
		_ = front.server.Close()
	}
	for _, front := range f.grpc {
		front.server.Stop()
	}
	_ = f.http.Close()
	<-ended
	f.app.logger.Info("shut down")
}

func wait(d time.Duration, hurry <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hurry:
	}
}
