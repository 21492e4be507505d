package auth

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// recheckInterval is how often the token file is looked at, at most.
const recheckInterval = time.Second

// tokenFile keeps the table of a file current. A request that comes recheckInterval after the last look at the file looks
// again; so no goroutine is needed, and it works for a Kubernetes secret, whose path is a chain of symbolic links.
type tokenFile struct {
	path    string
	now     func() time.Time
	log     *slog.Logger
	current atomic.Pointer[tokenTable]

	mu      sync.Mutex // held by the one request that looks
	checked time.Time
	info    fs.FileInfo // of the file that was read last, good or bad; nil: it could not be opened
}

// openTokenFile reads the file. Later a file that cannot be read, or is not valid, changes nothing and is logged once:
// to take back a token remove its entry, not the file.
func openTokenFile(path string, now func() time.Time, log *slog.Logger) (*tokenFile, error) {
	f := &tokenFile{path: path, now: now, log: log, checked: now()}
	table, err := f.read()
	if err != nil {
		return nil, err
	}
	f.current.Store(table)
	return f, nil
}

func (f *tokenFile) find(ctx context.Context, token string) (Principal, bool) {
	f.recheck(ctx)
	return f.current.Load().find(token, f.now())
}

func (f *tokenFile) recheck(ctx context.Context) {
	if !f.mu.TryLock() {
		return // another request is looking
	}
	defer f.mu.Unlock()
	now := f.now()
	if since := now.Sub(f.checked); since >= 0 && since < recheckInterval {
		return
	}
	f.checked = now
	info, err := os.Stat(f.path)
	if err != nil {
		info = nil
	}
	if sameFile(info, f.info) {
		return
	}
	table, err := f.read()
	if err != nil {
		f.log.ErrorContext(ctx, "token file not taken over, the previous tokens stay", slog.Any("error", err))
		return
	}
	f.current.Store(table)
	f.log.InfoContext(ctx, "token file read again", slog.String("file", f.path), slog.Int("tokens", len(table.entries)))
}

func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// read reads the file and remembers which file it was.
func (f *tokenFile) read() (*tokenTable, error) {
	f.info = nil
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if f.info, err = file.Stat(); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxTokenFile {
		return nil, fmt.Errorf("%s has more than %d bytes", f.path, maxTokenFile)
	}
	table, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return table, nil
}
