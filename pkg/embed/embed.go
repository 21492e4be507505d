// Package embed runs weir's engine inside another process: rules from files that are followed, counters in memory or in
// Redis, and a failure mode for when Redis is away. The Kong plugin embeds it; so may a service that wants no sidecar.
//
// Processes that embed it with the same rules, key prefix and Redis share their counters with each other and with weir's
// own server.
package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/pkg/counters"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/failover"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/rules"
)

// DefaultMaxKeys is how many counters are held in memory if Options.MaxKeys is 0.
const DefaultMaxKeys = counters.DefaultMaxKeys

// ErrNoRules is the error of a decision while none of the rule files has been valid yet.
var ErrNoRules = errors.New("no valid rules yet")

// Redis says which Redis holds the counters, and how to speak to it.
type Redis = redisstore.Options

// Options are an Engine's settings. The zero value counts in memory what callers bring limits for.
type Options struct {
	// Rules are rule files and folders, followed while the Engine is open. None: limits come with the requests.
	Rules []string
	// Redis says where the counters are. nil: in memory.
	Redis *Redis
	// KeyPrefix begins every key. Empty: as the engine's.
	KeyPrefix string
	// OnFailure answers while Redis is away, where a rule does not say otherwise. FailureDefault: ratelimit.FailOpen.
	OnFailure ratelimit.FailureMode
	// Fraction is the part of each limit that local counters allow while Redis is away. 0: failover.DefaultFraction.
	Fraction float64
	// LocalOnly makes the counters in memory a stand-in: they allow Fraction of each limit, always, and a rule whose
	// failure mode is not local gets the answer of its mode. For a process that decides while its server is away.
	LocalOnly bool
	// MaxKeys bounds the counters in memory. 0: DefaultMaxKeys.
	MaxKeys int
	// Recorder is told about every decision. nil: nobody is.
	Recorder engine.Recorder
	// Logger is told of rules loaded and refused, and of Redis. nil: nobody is.
	Logger *slog.Logger
}

// Engine decides requests. All its methods are safe for concurrent use. Close it to stop what it runs in the background.
type Engine struct {
	limiter *engine.Limiter
	byRules bool
	problem atomic.Pointer[error] // why the files' last load was refused
	logger  *slog.Logger
	batches sync.Pool
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	close   []func()
}

// Open starts an Engine. It does not wait for Redis. Rule files that are not valid are no error: they are followed, and until
// they are right every decision fails with ErrNoRules.
func Open(options Options) (*Engine, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{byRules: len(options.Rules) > 0, logger: options.Logger, batches: sync.Pool{New: func() any { return new(engine.Batch) }}}
	store, err := e.openStore(options)
	if err != nil {
		e.closeStores()
		return nil, err
	}
	e.limiter = engine.New(store, engine.Options{Prefix: options.KeyPrefix, Recorder: options.Recorder})
	background, stop := context.WithCancel(context.Background())
	e.stop = stop
	if e.byRules {
		watcher := rules.NewWatcher(options.Rules, rules.Options{}, rules.WatcherOptions{
			OnLoad: e.loaded, OnError: e.refused, Logger: options.Logger,
		})
		if table, err := watcher.Load(); err != nil {
			e.refused(err)
		} else {
			e.loaded(table)
		}
		e.tasks.Go(func() { watcher.Run(background) })
	}
	return e, nil
}

func (e *Engine) openStore(options Options) (engine.Store, error) {
	if options.LocalOnly {
		return e.standIn(options)
	}
	store, err := counters.Open(counters.Options{
		Redis: options.Redis, KeyPrefix: options.KeyPrefix,
		MaxKeys: options.MaxKeys, LocalMaxKeys: options.MaxKeys,
		OnFailure: options.OnFailure, LocalFraction: options.Fraction,
		Guard: failover.Options{Logger: options.Logger},
	})
	if err != nil {
		return nil, err
	}
	e.close = append(e.close, store.Close)
	return store, nil
}

// Decide decides one request and calls use with the answer, which is valid only during this call. It returns the error of
// a request that cannot be decided: ErrNoRules, or one of the engine's. ctx bounds the time of the store.
func (e *Engine) Decide(ctx context.Context, request *ratelimit.Request, use func(*engine.Decision)) error {
	if e.byRules && e.limiter.Table() == nil {
		if problem := e.problem.Load(); problem != nil {
			return fmt.Errorf("%w: %w", ErrNoRules, *problem)
		}
		return ErrNoRules
	}
	batch := e.batches.Get().(*engine.Batch)
	defer func() {
		batch.Reset()
		e.batches.Put(batch)
	}()
	batch.Requests = append(batch.Requests, *request)
	e.limiter.Decide(ctx, batch)
	decision := &batch.Decisions[0]
	if decision.Err != nil {
		return decision.Err
	}
	use(decision)
	return nil
}

// Close stops following files, and closes the stores. Decisions must have ended. It may be called once.
func (e *Engine) Close() {
	e.stop()
	e.tasks.Wait()
	e.closeStores()
}

func (e *Engine) closeStores() {
	for _, end := range slices.Backward(e.close) {
		end()
	}
}

func (e *Engine) loaded(table *rules.Table) {
	e.limiter.SetTable(table)
	e.problem.Store(nil)
	for _, warning := range table.Warnings() {
		e.logger.Warn("a rule is valid but probably not meant", "warning", warning.String())
	}
	e.logger.Info("rules loaded", "rules", table.Len(), "domains", len(table.Domains()))
}

func (e *Engine) refused(err error) {
	e.problem.Store(&err)
	e.logger.Error("the rules were not loaded, those before stay in force", "error", err)
}
