package auth

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// issuerStub answers fetches with a key of one id, or fails.
type issuerStub struct {
	mu      sync.Mutex
	id      string
	err     error
	fetches int
	delay   time.Duration
}

func (i *issuerStub) set(id string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id, i.err = id, err
}

func (i *issuerStub) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

func (i *issuerStub) fetch(ctx context.Context) (*keySet, error) {
	i.mu.Lock()
	i.fetches++
	id, err, delay := i.id, i.err, i.delay
	i.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return &keySet{[]verificationKey{{id, "EdDSA", ed25519.PublicKey(id)}}, time.Now()}, nil
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, test func(t *testing.T, issuer *issuerStub, source *keySource)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		issuer := &issuerStub{id: "a", delay: 100 * time.Millisecond}
		source := newKeySource(issuer.fetch, 10*time.Minute, 10*time.Second, time.Now, slog.New(slog.DiscardHandler))
		defer source.close()
		test(t, issuer, source)
	})
}

func wantKey(t *testing.T, source *keySource, id string, want error) {
	t.Helper()
	keys, err := source.keys(t.Context(), id, "EdDSA")
	if !errors.Is(err, want) || (want == nil) != (len(keys) == 1) {
		t.Errorf("key %q: %d keys, %v; want %v", id, len(keys), err, want)
	}
}

func TestKeysAreCached(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		for range 50 {
			wantKey(t, source, "a", nil)
			wantKey(t, source, "", nil) // a token without a key id
			time.Sleep(time.Second)
		}
		if got := issuer.count(); got != 1 {
			t.Errorf("%d fetches", got)
		}
	})
}

func TestOneFetchForManyCallers(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		var wait sync.WaitGroup
		for range 100 {
			wait.Go(func() { wantKey(t, source, "a", nil) })
		}
		wait.Wait()
		if got := issuer.count(); got != 1 {
			t.Errorf("%d fetches", got)
		}
	})
}

func TestRotation(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		wantKey(t, source, "a", nil)
		time.Sleep(time.Minute)
		issuer.set("b", nil)
		wantKey(t, source, "b", nil) // fetched because of the unknown key id
		wantKey(t, source, "a", ErrUnauthenticated)
	})
}

func TestWithdrawnKeyEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		wantKey(t, source, "a", nil)
		issuer.set("b", nil)
		time.Sleep(10 * time.Minute)
		wantKey(t, source, "a", nil) // begins the fetch, does not wait for it
		time.Sleep(time.Second)
		wantKey(t, source, "a", ErrUnauthenticated)
		wantKey(t, source, "b", nil)
	})
}

func TestFloodOfKeyIDs(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		wantKey(t, source, "a", nil)
		first := issuer.count()
		var wait sync.WaitGroup
		for caller := range 20 {
			wait.Go(func() {
				for i := range 600 {
					wantKey(t, source, fmt.Sprint("invented-", caller, "-", i), ErrUnauthenticated)
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		wait.Wait() // 12,000 in a minute and a little
		if got := issuer.count() - first; got > 7 {
			t.Errorf("%d fetches in about a minute, want 6", got)
		}
		wantKey(t, source, "a", nil)
		source.mu.Lock()
		defer source.mu.Unlock()
		if len(source.unknown) > maxUnknown {
			t.Errorf("%d key ids are remembered", len(source.unknown))
		}
	})
}

func TestUnknownKeyIDsAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *issuerStub, source *keySource) {
		for i := range maxUnknown + 5 {
			source.remember(fmt.Sprint(i))
		}
		if got := len(source.unknown); got != maxUnknown {
			t.Errorf("%d are remembered", got)
		}
		time.Sleep(unknownLifetime)
		source.remember("new")
		if got := len(source.unknown); got != 1 {
			t.Errorf("%d are remembered after a minute", got)
		}
	})
}

func TestUnknownKeyIDIsAskedOnceAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		wantKey(t, source, "a", nil)
		time.Sleep(time.Minute)
		before := issuer.count()
		for range 50 { // within a minute
			wantKey(t, source, "gone", ErrUnauthenticated)
			time.Sleep(time.Second)
		}
		if got := issuer.count() - before; got != 1 {
			t.Errorf("%d fetches for one key id in 50 seconds", got)
		}
		issuer.set("gone", nil)
		time.Sleep(unknownLifetime)
		wantKey(t, source, "gone", nil) // an issuer may publish it later
	})
}

func TestLastGoodKeysStay(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		var logs bytes.Buffer
		source.log = slog.New(slog.NewTextHandler(&logs, nil))
		wantKey(t, source, "a", nil)
		issuer.set("", errors.New("connection refused"))
		for range 100 {
			time.Sleep(time.Minute)
			wantKey(t, source, "a", nil)
		}
		synctest.Wait()
		issuer.set("b", nil)
		time.Sleep(time.Minute)
		wantKey(t, source, "b", nil)
		if got := logs.String(); strings.Count(got, "cannot be fetched") != 1 || strings.Count(got, "can be fetched again") != 1 {
			t.Errorf("log: %s", got)
		}
	})
}

func TestIssuerDownAtStart(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		issuer.set("", errors.New("connection refused"))
		for range 100 {
			wantKey(t, source, "a", ErrUnavailable)
		}
		if got := issuer.count(); got != 1 {
			t.Errorf("%d fetches at once", got)
		}
		issuer.set("a", nil)
		time.Sleep(10 * time.Second)
		wantKey(t, source, "a", nil)
	})
}

func TestSlowIssuerHoldsNobodyLonger(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		issuer.delay = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := source.keys(ctx, "a", "EdDSA"); !errors.Is(err, ErrUnavailable) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		// The fetch goes on for the others, but not for ever.
		if _, err := source.keys(t.Context(), "a", "EdDSA"); !errors.Is(err, ErrUnavailable) || time.Since(start) != fetchTimeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestClosedSource(t *testing.T) {
	inBubble(t, func(t *testing.T, issuer *issuerStub, source *keySource) {
		wantKey(t, source, "a", nil)
		time.Sleep(time.Minute)
		issuer.delay = time.Hour
		var failed atomic.Bool
		var wait sync.WaitGroup
		wait.Go(func() {
			_, err := source.keys(t.Context(), "b", "EdDSA")
			failed.Store(err != nil)
		})
		synctest.Wait()
		source.close() // ends the fetch at once
		wait.Wait()
		if !failed.Load() {
			t.Error("a key came from nowhere")
		}
		before := issuer.count()
		time.Sleep(time.Hour)
		wantKey(t, source, "a", nil)
		wantKey(t, source, "c", ErrUnauthenticated)
		if got := issuer.count(); got != before {
			t.Errorf("%d fetches after close", got-before)
		}
	})
}
