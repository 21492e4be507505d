package engine

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// Options are a Limiter's settings. The zero value is usable.
type Options struct {
	// Prefix begins every key. Defaults to "ratelimit".
	Prefix string
	// DefaultDomain is the domain whose keys have the short form PREFIX:SCOPE:IDENTIFIER:WINDOW. Defaults to "k1s0".
	DefaultDomain string
	// Recorder is told about every decision. nil: nobody is.
	Recorder Recorder
	// EnvoyKeys counts overrides under the keys of envoyproxy/ratelimit where it could count them: see ratelimit.Limit.EnvoyKey.
	// Rules bring the mark themselves.
	EnvoyKeys bool
	// EnvoyPrefix begins those keys. Empty: nothing does.
	EnvoyPrefix string
	// ShadowMode puts all rules and overrides into shadow mode: counted, never enforced.
	ShadowMode bool
	// QuotaMode puts all rules and overrides into quota mode: a request is over only when all its limited descriptors are.
	QuotaMode bool
}

// Limiter decides requests by a table of rules and the counters in a Store. All its methods are safe for concurrent use.
type Limiter struct {
	store     Store
	options   Options
	prefix    []byte // escaped, with its colon
	table     atomic.Pointer[rules.Table]
	overrides overrides
}

// New returns a Limiter without rules: until SetTable every domain is unknown to it.
func New(store Store, options Options) *Limiter {
	options.Prefix = cmp.Or(options.Prefix, "ratelimit")
	options.DefaultDomain = cmp.Or(options.DefaultDomain, "k1s0")
	if options.Recorder == nil {
		options.Recorder = silent{}
	}
	return &Limiter{store: store, options: options, prefix: appendPrefix(nil, options.Prefix)}
}

// SetTable makes t the rules of all decisions that begin from now on. Those under way keep the table they began with.
func (l *Limiter) SetTable(t *rules.Table) { l.table.Store(t) }

// Table returns the rules in force, nil before the first SetTable.
func (l *Limiter) Table() *rules.Table { return l.table.Load() }

// Decide fills b.Decisions with the answers to b.Requests, asking the store once for all of them. Requests are charged
// in their order. It always answers: what goes wrong is in the decisions. ctx bounds the store's time.
func (l *Limiter) Decide(ctx context.Context, b *Batch) {
	b.scratch()
	b.Decisions = resized(b.Decisions, len(b.Requests))
	n := 0
	for i := range b.Requests {
		n += len(b.Requests[i].Descriptors)
	}
	b.statuses = resized(b.statuses, n)
	b.plans = resized(b.plans, n)

	table := l.table.Load()
	first := 0
	for i := range b.Requests {
		request, decision := &b.Requests[i], &b.Decisions[i]
		end := first + len(request.Descriptors)
		decision.Statuses = b.statuses[first:end:end]
		switch {
		case request.Domain == "":
			decision.Err = ErrNoDomain
		case len(request.Descriptors) == 0:
			decision.Err = ErrNoDescriptors
		default:
			l.plan(table, b, request, decision, b.plans[first:end])
		}
		first = end
	}

	l.take(ctx, b)
	l.foldAll(b)
}

// foldAll makes the decisions that can be made now and have not been.
func (l *Limiter) foldAll(b *Batch) {
	first := 0
	for i := range b.Requests {
		request, decision := &b.Requests[i], &b.Decisions[i]
		end := first + len(request.Descriptors)
		if plans := b.plans[first:end]; !decision.Made && !b.undecided(plans) {
			decision.Made = true
			if decision.Err == nil {
				l.fold(b, request, decision, plans)
			}
		}
		first = end
	}
}

// Check decides one request. It allocates; fronts with many calls use Decide. With peek, nothing is charged or recorded.
func (l *Limiter) Check(ctx context.Context, request ratelimit.Request, peek bool) Decision {
	b := &Batch{Requests: []ratelimit.Request{request}, Peek: peek}
	l.Decide(ctx, b)
	return b.Decisions[0]
}

// take lets the store decide what has been planned. Only here do charges get their slices, because the arrays behind them
// grow while planning.
func (l *Limiter) take(ctx context.Context, b *Batch) {
	if len(b.charges) == 0 {
		return
	}
	b.results = resized(b.results, len(b.hits))
	for i := range b.charges {
		s := b.spans[i]
		b.charges[i].Hits = b.hits[s.first:s.end:s.end]
		b.charges[i].Results = b.results[s.first:s.end:s.end]
	}
	if b.Timed {
		b.StoreBegan = time.Now()
	}
	if b.Early != nil {
		b.early.begin(ctx, l, b)
		ctx = &b.early
	}
	l.store.Take(ctx, b.charges)
	if b.Timed {
		b.StoreEnded = time.Now()
	}
}

// key returns what was appended to b.keys since first, as a string. It is valid until the next Decide or Reset.
func (b *Batch) key(first int) string {
	if first == len(b.keys) {
		return ""
	}
	return unsafe.String(&b.keys[first], len(b.keys)-first)
}
