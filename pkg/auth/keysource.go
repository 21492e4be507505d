package auth

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	fetchTimeout    = 5 * time.Second
	unknownLifetime = time.Minute // how long a key id stays known as unknown
	maxUnknown      = 1000
)

// keySource caches an issuer's keys.
//
// Keys are fetched when the first token comes, when they are older than refresh, and when a token names a key that is not
// among them; at most one fetch runs at a time, and never two within interval, so a flood of invented key ids costs the
// issuer one request per interval. While the issuer cannot be reached the last good keys stay.
//
// It is own code because the fetchers in use for golang-jwt bound neither the size of an answer nor the rate of fetches
// without making callers queue for it.
type keySource struct {
	fetch             func(context.Context) (*keySet, error)
	refresh, interval time.Duration
	now               func() time.Time
	log               *slog.Logger
	current           atomic.Pointer[keySet] // nil before the first success

	ctx    context.Context // ends with close; fetches belong to the source, not to the request that began them
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu       sync.Mutex
	inflight chan struct{} // closed when the running fetch is done; nil: none runs
	next     time.Time     // no fetch before
	unknown  map[string]time.Time
	failing  bool
}

func newKeySource(fetch func(context.Context) (*keySet, error), refresh, interval time.Duration, now func() time.Time, log *slog.Logger) *keySource {
	ctx, cancel := context.WithCancel(context.Background())
	return &keySource{
		fetch: fetch, refresh: refresh, interval: interval, now: now, log: log,
		ctx: ctx, cancel: cancel, unknown: map[string]time.Time{},
	}
}

// close ends a running fetch and waits for it. After it nothing is fetched; cached keys still serve.
func (s *keySource) close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.wait.Wait()
}

// keys returns the keys for a token's key id (empty: it has none) and algorithm. It waits only if the answer may depend on
// a fetch, and no longer than ctx. The error is ErrUnauthenticated for a key that the issuer does not have, ErrUnavailable if
// its keys were never fetched or do not come in time.
func (s *keySource) keys(ctx context.Context, id, algorithm string) ([]jwt.VerificationKey, error) {
	known := s.current.Load()
	if known != nil {
		if s.now().Sub(known.fetched) >= s.refresh {
			s.begin("")
		}
		if found := known.find(id, algorithm); found != nil {
			return found, nil
		}
	}
	if done := s.begin(id); done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ErrUnavailable
		}
	}
	set := s.current.Load()
	if set == nil {
		return nil, ErrUnavailable
	}
	if found := set.find(id, algorithm); found != nil {
		return found, nil
	}
	if set != known {
		s.remember(id)
	}
	return nil, ErrUnauthenticated
}

// begin starts a fetch because of a key id, and returns what is closed when it is done. If one is running, it is that
// one's; nil if none may start now.
func (s *keySource) begin(id string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inflight != nil {
		return s.inflight
	}
	now := s.now()
	if s.ctx.Err() != nil || now.Before(s.next) || now.Before(s.unknown[id]) {
		return nil
	}
	s.next = now.Add(s.interval)
	done := make(chan struct{})
	s.inflight = done
	s.wait.Go(func() {
		defer close(done)
		s.run()
	})
	return done
}

// run fetches once.
func (s *keySource) run() {
	ctx, cancel := context.WithTimeout(s.ctx, fetchTimeout)
	defer cancel()
	set, err := s.fetch(ctx)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.inflight = nil
	if err != nil {
		if s.ctx.Err() == nil && !s.failing {
			s.log.WarnContext(ctx, "the issuer's keys cannot be fetched, known ones stay in use", slog.Any("error", err))
		}
		s.failing = true
		return
	}
	if s.failing {
		s.log.InfoContext(ctx, "the issuer's keys can be fetched again", slog.Int("keys", len(set.keys)))
	}
	s.failing = false
	s.current.Store(set)
}

// remember notes that a fresh key set lacks a key id, so that the same one does not cause the next fetch as well.
func (s *keySource) remember(id string) {
	if id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if len(s.unknown) >= maxUnknown {
		for known, until := range s.unknown {
			if !now.Before(until) {
				delete(s.unknown, known)
			}
		}
	}
	if len(s.unknown) < maxUnknown {
		s.unknown[id] = now.Add(unknownLifetime)
	}
}
