package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// call is a caller's part in a flight: a copy of its charges, and room for what comes of them. So a caller may leave while
// Redis is still deciding, and its memory is not touched by any other goroutine.
type call struct {
	charges []charge
	hits    []ratelimit.Hit // of all charges; their keys are in text
	results []ratelimit.Result
	text    []byte

	ctx      context.Context //nolint:containedctx // the caller's, which waits
	done     <-chan struct{} // ctx's
	deadline time.Time
	wake     chan signal // gets one when the caller need not wait any longer

	// Guarded by the lane's mu.
	state      state
	prev, next *call   // in the lane's queue
	came       uint64  // its place among all that came
	flight     *flight // that it leads
}

// charge is a copy of a charge, as it is sent.
type charge struct {
	at        int // among the caller's charges
	hits      []ratelimit.Hit
	results   []ratelimit.Result
	cancelled *atomic.Bool // the caller's memory: asked only while the caller is there
	leftOut   bool         // because it is cancelled; guarded by the lane's mu once the call is in the queue
	err       error
	idKey     string // under which its ID is remembered; empty: it has none
	mark      [markSize]byte
	decided   int64   // when, in microseconds since the Unix epoch; only with an ID
	next      *charge // the next one that is counted with it, see request.add
}

// state is where a call is.
type state uint8

const (
	waiting state = iota // in the queue
	leading              // its caller runs, or is about to run, a flight
	riding               // in a flight that another caller runs
	leaving              // riding, but its caller has been sent away
	landed               // its results are there
	gone                 // its caller has left it to the flight that it rides in
)

// signal is what a caller that waits is told.
type signal bool

const (
	goOn     signal = false // the call has landed, or is to lead
	sentAway signal = true  // its time, or its caller's, is over, but the flight that it rides in has not landed
)

// keepHits bounds the memory that is kept for the next call, in hits.
const keepHits = 1 << 10

// calls are kept to be used again: in steady state a call allocates nothing.
type calls struct{ pool sync.Pool }

func (p *calls) get(ctx context.Context, deadline time.Time) *call {
	c, ok := p.pool.Get().(*call)
	if !ok {
		c = &call{wake: make(chan signal, 1)}
	}
	c.ctx, c.done = ctx, ctx.Done()
	c.deadline, c.state = deadline, waiting
	return c
}

// put takes back a call that nobody uses any more.
func (p *calls) put(c *call) {
	if cap(c.hits) > keepHits || cap(c.charges) > keepHits {
		return
	}
	clear(c.charges)
	clear(c.hits)
	c.charges, c.hits, c.results, c.text = c.charges[:0], c.hits[:0], c.results[:0], c.text[:0]
	c.ctx, c.done = nil, nil
	c.prev, c.next, c.flight = nil, nil, nil
	p.pool.Put(c)
}

// check readies a caller's charge, and reports whether it is to be sent.
func check(c *ratelimit.Charge) bool {
	c.Err, c.Degraded, c.At = nil, ratelimit.FailureDefault, 0
	switch {
	case len(c.Hits) > maxChargeHits:
		c.Err = fmt.Errorf("%w: %d, at most %d", ErrTooManyHits, len(c.Hits), maxChargeHits)
	case len(c.Results) < len(c.Hits):
		c.Err = fmt.Errorf("a charge of %d hits has room for %d results", len(c.Hits), len(c.Results))
	default:
		return len(c.Hits) > 0
	}
	return false
}

// add copies charge number at of the caller's. tagged says that keys are written as in a Cluster. After the last one, ready
// must be called.
func (c *call) add(from *ratelimit.Charge, at int, tagged bool) {
	to := charge{at: at, cancelled: from.Cancelled, err: errUndecided}
	for i := range from.Hits {
		hit := from.Hits[i]
		if tagged && !hit.Limit.EnvoyKey {
			hit.Key = c.own(func(dst []byte) []byte { return appendTagged(dst, hit.Key) })
		} else {
			hit.Key = c.own(func(dst []byte) []byte { return append(dst, hit.Key...) })
		}
		c.hits = append(c.hits, hit)
	}
	if from.ID != "" {
		space := idSpace(from.Hits[0].Key)
		if tagged {
			space = tag(c.hits[len(c.hits)-len(from.Hits)].Key)
		}
		to.idKey = c.own(func(dst []byte) []byte { return appendIDKey(dst, space, from.ID) })
		appendMark(to.mark[:0], from.Hits)
	}
	to.hits = c.hits[len(c.hits)-len(from.Hits):] // of the right length; ready finds the right place
	c.charges = append(c.charges, to)
}

// ready gives the charges their slices, which have moved while they were added.
func (c *call) ready() {
	if cap(c.results) < len(c.hits) {
		c.results = make([]ratelimit.Result, len(c.hits))
	}
	c.results = c.results[:len(c.hits)]
	first := 0
	for i := range c.charges {
		end := first + len(c.charges[i].hits)
		c.charges[i].hits, c.charges[i].results = c.hits[first:end:end], c.results[first:end:end]
		first = end
	}
}

// own makes a string in the call's own memory.
func (c *call) own(write func(dst []byte) []byte) string {
	first := len(c.text)
	c.text = write(c.text)
	made := c.text[first:]
	return unsafe.String(unsafe.SliceData(made), len(made))
}

// deliver copies what came of the charges to the caller's.
func (c *call) deliver(charges []ratelimit.Charge) {
	for i := range c.charges {
		from := &c.charges[i]
		to := &charges[from.at]
		if to.Err = from.err; to.Err == nil {
			copy(to.Results, from.results)
			to.At = from.decided
		}
	}
}

// leaveOut leaves out the charges that are cancelled. The caller is there, which the lane's mu sees to.
func (c *call) leaveOut() {
	for i := range c.charges {
		if to := &c.charges[i]; to.cancelled != nil && to.cancelled.Load() {
			to.leftOut, to.err = true, ratelimit.ErrCancelled
		}
	}
}

// refuse fails all charges but those that are left out.
func (c *call) refuse(err error) {
	for i := range c.charges {
		if !c.charges[i].leftOut {
			c.charges[i].err = err
		}
	}
}

// over reports whether the call is not to be waited for any longer.
func (c *call) over(now time.Time) bool {
	select {
	case <-c.done:
		return true
	default:
		return !now.Before(c.deadline)
	}
}

// left is the error of charges that are over.
func (c *call) left() error {
	if err := c.ctx.Err(); err != nil {
		return unavailable(err)
	}
	return unavailable(context.DeadlineExceeded)
}
