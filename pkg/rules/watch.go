package rules

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// WatcherOptions are the settings of a Watcher. The zero value is usable.
type WatcherOptions struct {
	// Debounce is how long there must be no further event before files are read; a burst of events delays this by at most
	// five times as much. Defaults to 100 ms.
	Debounce time.Duration
	// Poll is how often files are read without any event, in case one was lost. Defaults to 10 s, or 1 s where the system
	// gives no events at all.
	Poll time.Duration
	// OnLoad gets each new table, OnError the error of each load that failed (Problems, as of Load): the rules in use stay
	// as they are. Both are called from Run, one at a time. Either may be nil.
	OnLoad  func(*Table)
	OnError func(error)
	// Logger is told what cannot be watched. Defaults to slog.Default().
	Logger *slog.Logger
}

const (
	defaultDebounce = 100 * time.Millisecond
	defaultPoll     = 10 * time.Second
	pollWithout     = time.Second
	// burst is how many times Debounce a burst of events may delay a load.
	burst = 5
)

// Watcher loads rules again whenever their files change.
//
// It watches folders, not files, so that it sees an editor's rename-over, new and deleted files, and a Kubernetes
// ConfigMap, whose files are links through a link that is swapped. Files whose content is as it was at the last attempt do not
// count as a change. All files gone is an error (ErrNoRules) like any other: the rules in use stay.
type Watcher struct {
	paths   []string
	opts    Options
	set     WatcherOptions
	reload  chan struct{}
	content [sha256.Size]byte // of the last attempt
	tried   bool
}

// NewWatcher prepares a watcher of files and folders, which are those of Load.
func NewWatcher(paths []string, opts Options, set WatcherOptions) *Watcher {
	if set.Debounce <= 0 {
		set.Debounce = defaultDebounce
	}
	if set.Logger == nil {
		set.Logger = slog.Default()
	}
	if set.OnLoad == nil {
		set.OnLoad = func(*Table) {}
	}
	if set.OnError == nil {
		set.OnError = func(error) {}
	}
	return &Watcher{paths: slices.Clone(paths), opts: opts, set: set, reload: make(chan struct{}, 1)}
}

// Load loads the rules now and returns what OnLoad or OnError would get. Call it before Run, if at all: Run then begins
// with what has changed since. Without it Run begins with a load.
func (w *Watcher) Load() (*Table, error) {
	files, problems := settled(w.read)
	w.content, w.tried = contentOf(files, problems), true
	return compileFiles(files, problems, w.opts)
}

func (w *Watcher) read() ([]file, Problems) { return readFiles(w.paths) }

// Reload makes Run load the rules again even if no file has changed, as for a SIGHUP. It returns at once. It is safe for
// concurrent use.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is on its way
	}
}

// Run watches until ctx ends. It must be called once.
func (w *Watcher) Run(ctx context.Context) {
	watches := newWatches(w.paths, w.set.Logger)
	defer watches.close()
	poll := w.set.Poll
	if poll <= 0 {
		poll = defaultPoll
		if watches.notify == nil {
			poll = pollWithout
		}
	}
	polls := time.NewTicker(poll)
	defer polls.Stop()

	w.check(watches, false)
	quiet := time.NewTimer(w.set.Debounce)
	quiet.Stop()
	defer quiet.Stop()
	var latest time.Time // until when the current burst is gathered; zero: there is none
	event := func() {
		now := time.Now()
		if latest.IsZero() {
			latest = now.Add(burst * w.set.Debounce)
		}
		quiet.Reset(min(w.set.Debounce, latest.Sub(now)))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-watches.events():
			if watches.concerns(e.Name) {
				event()
			}
		case err := <-watches.errors():
			// Events may have been lost.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.set.Logger.WarnContext(ctx, "watching the rules", "error", err)
			}
			event()
		case <-quiet.C:
			latest = time.Time{}
			w.check(watches, false)
		case <-polls.C:
			w.check(watches, false)
		case <-w.reload:
			w.check(watches, true)
		}
	}
}

// check loads the rules if their files have changed, or if it must.
func (w *Watcher) check(watches *watches, must bool) {
	// First the watches, then the files: what changes from here on makes an event.
	watches.sync()
	if files, problems := w.read(); w.tried && !must && contentOf(files, problems) == w.content {
		return
	}
	table, err := w.Load()
	if err != nil {
		w.set.OnError(err)
		return
	}
	w.set.OnLoad(table)
}

// watches are the folders that are watched for a set of paths.
type watches struct {
	paths  []string
	log    *slog.Logger
	notify *fsnotify.Watcher // nil: the system gives no events
	scope  scope
	failed map[string]bool // folders that could not be watched, so that this is logged once
}

func newWatches(paths []string, log *slog.Logger) *watches {
	w := &watches{log: log, failed: map[string]bool{}}
	for _, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			log.Warn("a rule path cannot be watched", "path", path, "error", err)
			continue
		}
		w.paths = append(w.paths, absolute)
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("rule files are polled, because they cannot be watched", "interval", pollWithout, "error", err)
		return w
	}
	w.notify = notify
	return w
}

func (w *watches) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// events is nil, which blocks for ever, where there are none.
func (w *watches) events() chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

func (w *watches) errors() chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

// concerns tells whether an event's path may change the rules. A folder above the rules may be a busy one.
func (w *watches) concerns(path string) bool { return w.scope.holds(path) }

// sync watches the folders that now matter, and no others.
func (w *watches) sync() {
	if w.notify == nil {
		return
	}
	w.scope = scopeOf(w.paths)
	// The system forgets a folder that is deleted or moved; the list says what it still knows.
	watched := map[string]bool{}
	for _, folder := range w.notify.WatchList() {
		watched[folder] = true
		if _, needed := w.scope[folder]; !needed {
			_ = w.notify.Remove(folder) // it may be gone already
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(w.scope)) {
		if watched[folder] {
			continue
		}
		if err := w.notify.Add(folder); err == nil {
			delete(w.failed, folder)
		} else if !w.failed[folder] {
			w.failed[folder] = true
			w.log.Warn("a rule folder cannot be watched and is only polled", "folder", folder, "error", err)
		}
	}
}
