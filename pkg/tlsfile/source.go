package tlsfile

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultCheckEvery is how often, at most, files are looked at.
const DefaultCheckEvery = 5 * time.Second

// source is a value that is loaded from files, and loaded anew once they have changed.
type source[T any] struct {
	paths  []string
	every  time.Duration
	load   func() (*T, error)
	logger *slog.Logger

	current atomic.Pointer[T]
	next    atomic.Int64 // when to look at the files again, as time since born
	born    time.Time

	mu     sync.Mutex // held by the one that looks
	files  []os.FileInfo
	broken string // why the files of the last look cannot be used; "" if they can
}

// newSource loads the value for the first time.
func newSource[T any](paths []string, every time.Duration, logger *slog.Logger, load func() (*T, error)) (*source[T], error) {
	if every == 0 {
		every = DefaultCheckEvery
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &source[T]{every: every, load: load, logger: logger, born: time.Now()}
	for _, path := range paths {
		if path != "" {
			s.paths = append(s.paths, path)
		}
	}
	s.files = s.stat()
	value, err := load()
	if err != nil {
		return nil, err
	}
	s.current.Store(value)
	s.next.Store(int64(s.every))
	return s, nil
}

// get returns the current value. The call that finds it time to look reads the files; all others do not wait for it.
func (s *source[T]) get() *T {
	if now := time.Since(s.born); int64(now) >= s.next.Load() && s.mu.TryLock() {
		s.look()
		s.next.Store(int64(now + s.every))
		s.mu.Unlock()
	}
	return s.current.Load()
}

// look loads the value anew if the files have changed, or could not be used at the last look. mu is held.
func (s *source[T]) look() {
	// What is read below is at least as new as this: a change in between is seen at the next look.
	files := s.stat()
	if s.broken == "" && same(s.files, files) {
		return
	}
	s.files = files
	value, err := s.load()
	if err != nil {
		if err.Error() != s.broken {
			s.broken = err.Error()
			s.logger.Error("new TLS files cannot be used: those before them stay in use", "error", err)
		}
		return
	}
	s.broken = ""
	s.current.Store(value)
	s.logger.Info("TLS files loaded", "files", strings.Join(s.paths, ", "))
}

// stat describes each file, following symlinks; nil for one that is not there.
func (s *source[T]) stat() []os.FileInfo {
	files := make([]os.FileInfo, len(s.paths))
	for i, path := range s.paths {
		if info, err := os.Stat(path); err == nil {
			files[i] = info
		}
	}
	return files
}

func same(a, b []os.FileInfo) bool {
	for i := range a {
		switch {
		case a[i] == nil && b[i] == nil:
		case a[i] == nil || b[i] == nil:
			return false
		case !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()):
			return false
		}
	}
	return true
}
