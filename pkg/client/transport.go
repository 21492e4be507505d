package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// TransportOptions say how patient a Transport is. The zero value is usable.
type TransportOptions struct {
	// Base sends the requests. nil: http.DefaultTransport.
	Base http.RoundTripper

	// MaxRetries bounds how often a request that was answered with 429 or 503 is sent again. 0: 3; negative: never.
	MaxRetries int
	// MaxWait bounds the time that one request spends waiting, all its retries together. A wait that would go beyond it, or
	// beyond the request's deadline, is not begun: the response at hand is returned. 0: 30 s; negative: nothing ever waits.
	MaxWait time.Duration
	// MinBackoff and MaxBackoff are the ceilings of the random pauses before the first and the later retries; each retry
	// doubles the one before. They are added to what Retry-After asks for. 0: 250 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
	// RetryAny repeats requests of every method, if their body can be read again (Request.GetBody). Without it only those
	// of GET, HEAD, OPTIONS, TRACE, PUT, DELETE, and those with a header Idempotency-Key, are repeated.
	RetryAny bool

	// NoPacing sends at once what need not wait for a retry.
	NoPacing bool
	// PaceBelow is the share of the quota below which requests are spread evenly over the time until the reset. Where a
	// server does not tell its quota they always are. 0: 0.2.
	PaceBelow float64
	// MaxPace is the longest time by which pacing alone keeps two requests apart. 0: 5 s.
	MaxPace time.Duration
	// Key names what shares a limit. nil: the scheme and host of the URL.
	Key func(*http.Request) string
	// MaxKeys bounds how many keys are remembered. 0: 1024.
	MaxKeys int

	// OnWait is told before a request waits, and why. It must be quick. nil: nobody is.
	OnWait func(*http.Request, Wait)

	// Now is the clock, Sleep what waits by it: until the time has passed, or ctx ends, whose error it returns then. Rand
	// returns a number in [0, 1). nil: the system's.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
	Rand  func() float64
}

// Wait is a pause before a request.
type Wait struct {
	For time.Duration
	// Status is that of the response because of which the request is repeated; 0 for pacing.
	Status int
	// Retry counts the repetitions from 1; 0 for the first sending.
	Retry int
}

// ErrTransportOptions is wrapped by every error of NewTransport.
var ErrTransportOptions = errors.New("invalid transport settings")

// Transport is an http.RoundTripper that heeds what servers say about their limits. It waits for Retry-After, repeats what
// was answered with 429 or 503 after random pauses that grow, and slows down by itself as a budget announced by RateLimit,
// RateLimit-Remaining or X-RateLimit-Remaining ends, so that the limit is seldom met. Everything it waits for is
// bounded; where it does not wait, the caller gets the server's response as it is.
//
// It starts no goroutines and is safe for concurrent use.
type Transport struct {
	options TransportOptions
	pacer   *pacer
}

// NewTransport returns a Transport. The error wraps ErrTransportOptions.
func NewTransport(options TransportOptions) (*Transport, error) {
	switch {
	case options.MinBackoff < 0 || options.MaxBackoff < 0 || options.MaxPace < 0:
		return nil, fmt.Errorf("%w: MinBackoff, MaxBackoff and MaxPace must not be negative", ErrTransportOptions)
	case !(options.PaceBelow >= 0 && options.PaceBelow <= 1): // not a number fails, too
		return nil, fmt.Errorf("%w: PaceBelow %v: write 0 to 1", ErrTransportOptions, options.PaceBelow)
	case options.MaxKeys < 0:
		return nil, fmt.Errorf("%w: MaxKeys %d is negative", ErrTransportOptions, options.MaxKeys)
	}
	setDefault(&options.MaxRetries, 3)
	setDefault(&options.MaxWait, 30*time.Second)
	setDefault(&options.MinBackoff, 250*time.Millisecond)
	setDefault(&options.MaxBackoff, 10*time.Second)
	setDefault(&options.PaceBelow, 0.2)
	setDefault(&options.MaxPace, 5*time.Second)
	setDefault(&options.MaxKeys, 1024)
	if options.MinBackoff > options.MaxBackoff {
		return nil, fmt.Errorf("%w: MinBackoff %v is above MaxBackoff %v", ErrTransportOptions, options.MinBackoff, options.MaxBackoff)
	}
	if options.Base == nil {
		options.Base = http.DefaultTransport
	}
	if options.Key == nil {
		options.Key = func(r *http.Request) string { return r.URL.Scheme + "://" + r.URL.Host }
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Sleep == nil {
		options.Sleep = sleep
	}
	if options.Rand == nil {
		options.Rand = rand.Float64
	}
	return &Transport{options, &pacer{
		below: options.PaceBelow, longest: options.MaxPace, limit: options.MaxKeys, random: options.Rand, keys: map[string]*pace{},
	}}, nil
}

func setDefault[T comparable](setting *T, value T) {
	var zero T
	if *setting == zero {
		*setting = value
	}
}

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	trip := trip{Transport: t, first: request, key: t.options.Key(request), left: t.options.MaxWait}
	current := request
	for {
		if err := trip.pace(); err != nil {
			closeBody(current)
			return nil, err
		}
		response, err := trip.send(current)
		if err != nil {
			return nil, err
		}
		wait, ok := trip.wait(response)
		if !ok {
			return response, nil
		}
		next, ok := again(request)
		if !ok {
			return response, nil
		}
		discard(response)
		trip.retry++
		if err := trip.sleep(wait, response.StatusCode); err != nil {
			closeBody(next)
			return nil, err
		}
		current = next
	}
}

// CloseIdleConnections closes those of the base.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// trip is one request with its retries.
type trip struct {
	*Transport
	first *http.Request
	key   string
	left  time.Duration // of MaxWait
	retry int
	sent  int64 // the number that the pacer gave the last sending
}

// pace waits until the budget of the request's key allows it. Where that would take too long the request goes at once: the
// server knows better than what it has said before.
func (t *trip) pace() error {
	if t.options.NoPacing {
		return nil
	}
	var wait time.Duration
	t.sent, wait = t.pacer.reserve(t.key, t.options.Now(), t.patience())
	if wait <= 0 {
		return nil
	}
	return t.sleep(wait, 0)
}

// patience is how long the request may still wait: not beyond its deadline, at which it would be too late.
func (t *trip) patience() time.Duration {
	most := t.left
	if deadline, ok := t.first.Context().Deadline(); ok {
		most = min(most, time.Until(deadline)-1)
	}
	return max(0, most)
}

// send sends the request once and learns from the response.
func (t *trip) send(request *http.Request) (*http.Response, error) {
	response, err := t.options.Base.RoundTrip(request)
	if err != nil || t.options.NoPacing {
		return response, err
	}
	now := t.options.Now()
	b, ok := parseBudget(response.Header, now)
	if refused(response) {
		if after, has := parseRetryAfter(response.Header, now); has {
			b.remaining, b.reset, ok = 0, after, true
		}
	}
	if ok {
		t.pacer.learn(t.key, t.sent, now, b)
	}
	return response, nil
}

// refused tells that the server asks to come back later.
func refused(response *http.Response) bool {
	return response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable
}

// wait returns the pause after which the request is to be repeated, and false if it is not to be: because the answer is
// one, nothing may be repeated any more, or it would take too long.
func (t *trip) wait(response *http.Response) (time.Duration, bool) {
	most := t.patience()
	if !refused(response) || t.retry >= t.options.MaxRetries || most == 0 || !t.repeatable() {
		return 0, false
	}
	now := t.options.Now()
	asked, ok := parseRetryAfter(response.Header, now)
	if !ok && response.StatusCode == http.StatusTooManyRequests {
		if b, has := parseBudget(response.Header, now); has && b.remaining == 0 {
			asked = b.reset
		}
	}
	if asked > most {
		return 0, false
	}
	// Full jitter, added to what was asked for: coming earlier is pointless, and coming all at once is no better.
	ceiling := t.options.MaxBackoff
	if t.retry < 32 && t.options.MinBackoff <= ceiling>>t.retry {
		ceiling = t.options.MinBackoff << t.retry
	}
	ceiling = min(ceiling, (most-asked)/2) // and the request needs time, too
	return asked + time.Duration(t.options.Rand()*float64(ceiling)), true
}

// repeatable tells whether sending the request twice is as good as sending it once.
func (t *trip) repeatable() bool {
	if t.first.Body != nil && t.first.Body != http.NoBody && t.first.GetBody == nil {
		return false
	}
	switch t.first.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	default:
		return t.options.RetryAny || t.first.Header.Get("Idempotency-Key") != ""
	}
}

func (t *trip) sleep(wait time.Duration, status int) error {
	t.left -= wait
	if t.options.OnWait != nil {
		t.options.OnWait(t.first, Wait{wait, status, t.retry})
	}
	return t.options.Sleep(t.first.Context(), wait)
}

// again returns the request with its body from the beginning.
func again(request *http.Request) (*http.Request, bool) {
	next := request.Clone(request.Context())
	if request.Body == nil || request.Body == http.NoBody {
		return next, true
	}
	body, err := request.GetBody()
	if err != nil {
		return nil, false
	}
	next.Body = body
	return next, true
}

const (
	// maxDiscard and discardTime bound what is read of a body that nobody wants.
	maxDiscard  = 64 << 10
	discardTime = time.Second
)

// discard reads what is left of a short body, so that its connection can be used again, and closes it.
func discard(response *http.Response) {
	if response.ContentLength <= maxDiscard {
		// Closing ends a read that a slow server holds up.
		timer := time.AfterFunc(discardTime, func() { _ = response.Body.Close() })
		defer timer.Stop()
		_, _ = io.CopyN(io.Discard, response.Body, maxDiscard)
	}
	_ = response.Body.Close()
}

// closeBody closes the body of a request that is not sent, as RoundTripper asks.
func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}
