package engine

import (
	"context"
	"errors"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// ErrPostponed is the error of charges and decisions that would have to wait, and may not. Nothing was charged.
var ErrPostponed = errors.New("the decision would have to wait")

// errUndecided stands in charges that no store has decided yet.
var errUndecided = errors.New("no store has decided")

// Waiting tells the caller of Take that what is not decided yet will be waited for: a Store calls it before it waits, with
// Take's ctx. So the decisions that need no store are not held up by those that do, see Batch.Early. If it returns false the
// store must not wait: it leaves ErrPostponed in all charges that it was given.
func Waiting(ctx context.Context) bool {
	if e, ok := ctx.Value(earlyKey{}).(*early); ok {
		return e.waiting()
	}
	return true
}

type earlyKey struct{}

// early is the context that a Batch's charges are taken with, if it has Early.
type early struct {
	context.Context //nolint:containedctx // it is one, with a value
	limiter         *Limiter
	batch           *Batch
	asked, may      bool
}

func (e *early) Value(key any) any {
	if key == (earlyKey{}) {
		return e
	}
	return e.Context.Value(key)
}

// AfterFunc spares package context a goroutine per derived context.
func (e *early) AfterFunc(f func()) (stop func() bool) {
	if inner, ok := e.Context.(interface{ AfterFunc(func()) func() bool }); ok {
		return inner.AfterFunc(f)
	}
	return context.AfterFunc(e.Context, f)
}

// begin marks what has to be decided.
func (e *early) begin(ctx context.Context, l *Limiter, b *Batch) {
	*e = early{Context: ctx, limiter: l, batch: b}
	for i := range b.charges {
		b.charges[i].Err = errUndecided
	}
}

func (e *early) waiting() bool {
	if !e.asked {
		e.asked = true
		e.limiter.foldAll(e.batch)
		e.may = e.batch.Early()
	}
	return e.may
}

// undecided reports whether a charge of the plans waits for the store.
func (b *Batch) undecided(plans []plan) bool {
	for i := range plans {
		if plans[i].verdict == count && b.charges[plans[i].charge].Err == errUndecided { //nolint:errorlint // never wrapped
			return true
		}
	}
	return false
}

// passed reports whether an error says that there is no decision about the request.
func passed(err error) bool {
	return errors.Is(err, ratelimit.ErrConflict) || errors.Is(err, ratelimit.ErrCancelled) || errors.Is(err, ErrPostponed)
}
