// Package local decides in the plugin's own process. Engines are shared by all instances whose settings for them are equal,
// whichever nginx worker they are for, so that there is one set of counters in the process.
package local

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/weirhq/weir/kongplugin/internal/settings"
	"github.com/weirhq/weir/pkg/embed"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
	"github.com/weirhq/weir/pkg/tlsfile"
)

// grace is what a decision may take besides the store's own deadline.
const grace = 50 * time.Millisecond

// Pool holds the engines of the process. The zero value with a Logger is ready; it is safe for concurrent use.
type Pool struct {
	Logger *slog.Logger
	// Recorder is told about every decision of every engine. nil: nobody is.
	Recorder engine.Recorder

	mu      sync.Mutex
	engines map[string]*shared
}

// shared is an engine and how many use it.
type shared struct {
	key     string
	engine  *embed.Engine
	users   int
	timeout time.Duration
}

// plan is what engines are told apart by.
type plan struct {
	Rules     string
	Redis     *settings.Redis
	Prefix    string
	OnFailure ratelimit.FailureMode
	Fraction  float64
	StandIn   bool
}

// Engine returns the decider for mode embedded.
func (p *Pool) Engine(s *settings.Settings) (*Decider, error) {
	want := plan{Rules: s.RulesPath, Prefix: s.KeyPrefix}
	if s.Redis.Enabled() {
		want.Redis, want.OnFailure, want.Fraction = &s.Redis, ratelimit.FailOpen, s.FallbackFraction
		switch {
		case s.Fallback == "local":
			want.OnFailure = ratelimit.FailLocal
		case !s.FaultTolerant:
			want.OnFailure = ratelimit.FailClosed
		}
	}
	return p.acquire(&want)
}

// StandIn returns the decider that counts locally while a weir server is away.
func (p *Pool) StandIn(s *settings.Settings) (*Decider, error) {
	return p.acquire(&plan{Rules: s.RulesPath, Prefix: s.KeyPrefix, Fraction: s.FallbackFraction, StandIn: true})
}

func (p *Pool) acquire(want *plan) (*Decider, error) {
	name, err := json.Marshal(want)
	if err != nil {
		return nil, fmt.Errorf("embedded engine: %w", err)
	}
	key := string(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.engines[key]; e != nil {
		e.users++
		return &Decider{pool: p, shared: e}, nil
	}
	options, err := want.options(p.Logger)
	if err != nil {
		return nil, err
	}
	options.Recorder = p.Recorder
	opened, err := embed.Open(options)
	if err != nil {
		return nil, fmt.Errorf("embedded engine: %w", err)
	}
	e := &shared{key: key, engine: opened, users: 1, timeout: time.Second}
	if want.Redis != nil {
		e.timeout = want.Redis.Timeout() + grace
	}
	if p.engines == nil {
		p.engines = make(map[string]*shared)
	}
	p.engines[key] = e
	return &Decider{pool: p, shared: e}, nil
}

func (p *Pool) release(e *shared) {
	p.mu.Lock()
	e.users--
	last := e.users == 0
	if last {
		delete(p.engines, e.key)
	}
	p.mu.Unlock()
	if last {
		e.engine.Close()
	}
}

// Len is how many engines are open.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.engines)
}

func (w *plan) options(logger *slog.Logger) (embed.Options, error) {
	options := embed.Options{
		KeyPrefix: w.Prefix, OnFailure: w.OnFailure, Fraction: w.Fraction, LocalOnly: w.StandIn, Logger: logger,
	}
	if w.Rules != "" {
		options.Rules = []string{w.Rules}
	}
	if w.Redis == nil {
		return options, nil
	}
	redis, err := redisOptions(w.Redis, logger)
	options.Redis = redis
	return options, err
}

func redisOptions(r *settings.Redis, logger *slog.Logger) (*embed.Redis, error) {
	options := &embed.Redis{
		DB: r.Database, Username: r.Username, Password: r.Password, PoolSize: r.PoolSize, Timeout: r.Timeout(),
		SentinelUsername: r.SentinelUsername, SentinelPassword: r.SentinelPassword, MasterName: r.SentinelMaster,
	}
	switch {
	case r.Socket != "":
		options.Addr = r.Socket
	case len(r.ClusterNodes) > 0:
		for _, node := range r.ClusterNodes {
			options.Cluster = append(options.Cluster, net.JoinHostPort(node.IP, strconv.Itoa(node.Port)))
		}
	case len(r.SentinelNodes) > 0:
		for _, node := range r.SentinelNodes {
			options.Sentinel = append(options.Sentinel, net.JoinHostPort(node.Host, strconv.Itoa(node.Port)))
		}
	default:
		options.Addr = net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
	}
	if !r.SSL {
		return options, nil
	}
	client, err := tlsfile.NewClient(tlsfile.ClientOptions{CAFile: r.CAFile, ServerName: r.ServerName, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	unchecked := !r.SSLVerify
	options.TLSConfig = func() *tls.Config {
		config := client.Config()
		config.InsecureSkipVerify = unchecked
		return config
	}
	return options, nil
}

// Decider is one user's hold on a shared engine.
type Decider struct {
	pool   *Pool
	shared *shared
	once   sync.Once
}

// Decide decides one request. Simple limits come with it, as its descriptors' own; they count also in a domain that no rule
// is for.
func (d *Decider) Decide(ctx context.Context, request *ratelimit.Request) (respond.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, d.shared.timeout)
	defer cancel()
	if request.Fallback == nil && len(request.Descriptors) > 0 && request.Descriptors[0].Limit != nil {
		copied := *request
		copied.Fallback = request.Descriptors[0].Limit
		request = &copied
	}
	var shown respond.Decision
	err := d.shared.engine.Decide(ctx, request, func(decision *engine.Decision) { shown = show(decision) })
	return shown, err
}

// Close gives the engine back; the last one who does closes it.
func (d *Decider) Close() { d.once.Do(func() { d.pool.release(d.shared) }) }

// show describes a decision for a client: all limits that were counted, except where a dead store was passed over.
func show(decision *engine.Decision) respond.Decision {
	shown := respond.Decision{Denied: decision.Over}
	reached, reduced := false, false
	for i := range decision.Statuses {
		status := &decision.Statuses[i]
		if status.Outcome == ratelimit.OutcomeFailedOpen {
			continue
		}
		reduced = reduced || status.Outcome == ratelimit.OutcomeFailedClosed
		reached = reached || status.Over && status.Outcome != ratelimit.OutcomeFailedClosed && len(status.Limits) > 0
		name := ""
		if status.Rule != nil {
			name = status.Rule.Label()
		}
		for j := range status.Limits {
			counted := &status.Limits[j]
			limit := respond.NewLimit(counted.Limit, name, counted.Result)
			limit.Denied = limit.Denied && status.Over && decision.Over
			shown.Limits = append(shown.Limits, limit)
		}
	}
	switch {
	case !decision.Over || reached:
	case reduced:
		shown.Cause = respond.ReducedCapacity
	default:
		shown.Cause = respond.Refused
	}
	return shown
}
