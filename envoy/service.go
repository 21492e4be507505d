package envoy

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// Options are a Service's settings. The zero value sends what Envoy needs and nothing else.
type Options struct {
	// Headers writes response_headers_to_add, which Envoy adds to its 429 and to the upstream's response. nil: none, because
	// Envoy can write its own.
	Headers *respond.Formatter
	// Problem sends a problem+json body and its content-type with every denial.
	Problem bool
	// Status is the status that Envoy is configured to deny with (rate_limited_status), as the problem body says it.
	// Defaults to 429.
	Status int
	// Metadata sends dynamic_metadata, see appendMetadata for what it holds.
	Metadata bool
	// RequestMetadata sends dynamic_metadata that repeat the request, see appendRequestMetadata.
	RequestMetadata bool
	// Tracer makes a span for each call whose trace is recorded. nil: none, at no cost.
	Tracer trace.Tracer
	// Panicked is told about every panic, each of which is one call that failed with codes.Internal. nil: nobody is.
	Panicked func(value any, stack []byte)
	// Now is the time of day for headers that show one. Defaults to time.Now.
	Now func() time.Time
}

// Service answers ShouldRateLimit. It is safe for concurrent use.
type Service struct {
	limiter *engine.Limiter
	options Options
	pool    sync.Pool // of *work
}

// New returns a Service that decides with limiter.
func New(limiter *engine.Limiter, options Options) *Service {
	if options.Status == 0 {
		options.Status = http.StatusTooManyRequests
	}
	if options.Panicked == nil {
		options.Panicked = func(any, []byte) {}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	s := &Service{limiter: limiter, options: options}
	s.pool.New = func() any { return s.newWork() }
	return s
}

func (s *Service) newWork() *work {
	w := &work{service: s}
	w.onWait = w.waiting
	return w
}

// Call is one ShouldRateLimit.
type Call struct {
	// Request is a serialized RateLimitRequest. It must not change until Serve has returned, and is not needed afterwards.
	Request []byte
	// Traceparent is the W3C trace context that the caller sent, empty if none. It counts where there is a Tracer.
	Traceparent string
	// Cancelled, if not nil, turns true when nobody waits for the reply any more: what was not sent to the store by then is not
	// charged, and the call ends with codes.Canceled.
	Cancelled *atomic.Bool
	// Reply is what the serialized RateLimitResponse is appended to; unchanged unless Code is OK.
	Reply []byte
	// Code is OK, or InvalidArgument for a request that cannot be read or has no domain or no descriptors, or Canceled, or
	// Internal for a fault of this process. A denial is OK: Envoy takes every other code for a failed limiter and lets the
	// request pass.
	Code codes.Code
	// Message says what is wrong, and is empty if nothing is.
	Message string
	// Done tells that the call is answered, Postponed that it is not, because it would have had to wait; see ServeEarly.
	Done, Postponed bool
}

func (c *Call) fail(code codes.Code, message string) { c.Code, c.Message, c.Done = code, message, true }

// work is the memory of one Serve.
type work struct {
	service *Service
	onWait  func() bool // waiting, made once
	early   func() bool // of ServeEarly
	serving []Call      // meanwhile
	decoder decoder
	batch   engine.Batch
	calls   []int // for each request of the batch, its call
	shown   respond.Decision
	headers []respond.Header
}

// What a work keeps between uses, so that one huge request does not stay in memory.
const (
	keepDescriptors = 4 << 10
	keepEntries     = 16 << 10
)

func (w *work) reset() {
	d := &w.decoder
	d.reset()
	if cap(d.descriptors) > keepDescriptors || cap(d.limits) > keepDescriptors || cap(d.entries) > keepEntries {
		*d = decoder{}
	}
	w.batch.Reset()
	w.early, w.serving = nil, nil
	w.calls = w.calls[:0]
	clear(w.headers)
	w.headers = w.headers[:0]
	clear(w.shown.Limits)
	w.shown.Limits = w.shown.Limits[:0]
}

// Serve answers calls, asking the store once for all of them. Every call is answered, one way or another. ctx bounds the
// time that the store may take.
//
// A panic fails only the call that causes it. One that comes while the calls are decided together has each of them decided
// alone, and may have charged the others twice: too much rather than too little.
func (s *Service) Serve(ctx context.Context, calls []Call) { s.ServeEarly(ctx, calls, nil) }

// ServeEarly is Serve for a caller that does not want to hold up calls that need no store by those that do: early is called
// before the store is waited for, with Done set in the calls that are answered. If it returns false, the others are Postponed:
// they are not answered, nothing was charged for them, and they are to be served again. A panic can lead to further calls of early.
func (s *Service) ServeEarly(ctx context.Context, calls []Call, early func() (wait bool)) {
	if s.options.Tracer != nil {
		s.serveTraced(ctx, calls, early)
		return
	}
	s.answer(ctx, calls, early, nil)
}

// answer answers calls. recorded, if not nil, is told what was decided.
func (s *Service) answer(ctx context.Context, calls []Call, early func() bool, recorded *spans) {
	w := s.pool.Get().(*work) //nolint:forcetypeassert // the pool holds nothing else
	w.batch.Timed = recorded != nil
	if early != nil {
		w.early, w.serving, w.batch.Early = early, calls, w.onWait
	}
	if s.serve(ctx, calls, w) {
		if recorded != nil {
			recorded.decided(ctx, w)
		}
		w.reset()
		s.pool.Put(w)
		return
	}
	// What the panic left in w, nobody knows: it is dropped.
	if len(w.calls) > 1 {
		for _, at := range w.calls {
			if !calls[at].Done {
				s.answer(ctx, calls[at:at+1], early, nil)
			}
		}
	}
}

// serve answers calls in the memory of w. It reports whether they were decided, all together.
func (s *Service) serve(ctx context.Context, calls []Call, w *work) bool {
	for i := range calls {
		calls[i].Code, calls[i].Message = codes.OK, ""
		calls[i].Done, calls[i].Postponed = false, false
		w.batch.Requests = append(w.batch.Requests, ratelimit.Request{})
		if s.decode(&calls[i], w) {
			w.calls = append(w.calls, i)
		} else {
			w.batch.Requests = w.batch.Requests[:len(w.calls)]
		}
	}
	if !s.decide(ctx, calls, w) {
		return false
	}
	w.encode(calls)
	return true
}

// waiting is called before the store is waited for.
func (w *work) waiting() bool {
	w.encode(w.serving)
	return w.early()
}

// encode answers the calls whose decisions are made.
func (w *work) encode(calls []Call) {
	for i, at := range w.calls {
		call, decision := &calls[at], &w.batch.Decisions[i]
		switch {
		case call.Done || !decision.Made:
		case errors.Is(decision.Err, engine.ErrPostponed):
			call.Postponed = true
		default:
			call.Done = true
			w.service.encode(call, w, &w.batch.Requests[i], decision)
		}
	}
}

// decode reads a call into the last request of the batch.
func (s *Service) decode(call *Call, w *work) (ok bool) {
	defer s.recovered(call, &ok)
	request := &w.batch.Requests[len(w.batch.Requests)-1]
	if err := w.decoder.decode(call.Request, request); err != nil {
		call.fail(codes.InvalidArgument, "the RateLimitRequest cannot be read: "+err.Error())
		return false
	}
	request.Cancelled = call.Cancelled
	return true
}

// decide reports whether it came to an end. A panic fails the call if there is only one.
func (s *Service) decide(ctx context.Context, calls []Call, w *work) (ok bool) {
	if len(w.calls) == 0 {
		return true
	}
	var call *Call
	if len(w.calls) == 1 {
		call = &calls[w.calls[0]]
	}
	defer s.recovered(call, &ok)
	s.limiter.Decide(ctx, &w.batch)
	return true
}

func (s *Service) encode(call *Call, w *work, request *ratelimit.Request, decision *engine.Decision) {
	if decision.Err != nil {
		code := codes.Internal
		switch {
		case errors.Is(decision.Err, engine.ErrNoDomain), errors.Is(decision.Err, engine.ErrNoDescriptors):
			code = codes.InvalidArgument
		case errors.Is(decision.Err, ratelimit.ErrCancelled):
			code = codes.Canceled
		}
		call.fail(code, decision.Err.Error())
		return
	}
	var ok bool
	defer s.recovered(call, &ok)
	reply := appendDecision(call.Reply, decision)
	if s.options.Headers != nil || s.options.Problem && decision.Over {
		reply = s.appendShown(reply, w, decision)
	}
	if s.options.Metadata {
		reply = appendMetadata(reply, decision)
	}
	if s.options.RequestMetadata {
		reply = appendRequestMetadata(reply, request, decision)
	}
	call.Reply, ok = reply, true
}

// recovered ends a panic of the function that defers it. call, if not nil, fails.
func (s *Service) recovered(call *Call, ok *bool) {
	value := recover()
	if value == nil {
		return
	}
	*ok = false
	if call != nil {
		call.fail(codes.Internal, "internal error")
	}
	s.options.Panicked(value, debug.Stack())
}
