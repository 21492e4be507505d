package ruleset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/rulestore"
)

// Set keeps the rules in force current. All its methods are safe for concurrent use, after Load.
type Set struct {
	options Options
	watcher *rules.Watcher
	store   rulestore.Store // nil: none

	// turn is held while the store is read: a channel, because whoever waits for it may give up.
	turn     chan struct{}
	revision int64 // of the store when it was last read; unread before the first time
	reading  time.Duration

	mu         sync.Mutex // held while a table is made and put in force
	files      *rules.Table
	safe       bool // files is the safe default
	stored     []rulestore.Rule
	unreadable error // of stored rules

	view atomic.Pointer[View]
	// Why the files, and the stored rules, are not all in force; nil: they are.
	fileProblem, storedProblem atomic.Pointer[string]
	storeState                 atomic.Int32
}

const unread = -1

// What is known of the store.
const (
	unknown int32 = iota
	up
	down
)

// New prepares a set of rules from files alone. The error wraps ratelimit.ErrLimit: the default cannot be.
func New(options Options) (*Set, error) {
	if options.Observer == nil {
		options.Observer = unobserved{}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Set{options: options, revision: unread, turn: make(chan struct{}, 1)}
	safe, err := rules.Safe(options.Default)
	if err != nil {
		return nil, err
	}
	s.files, s.safe = safe, true
	s.watcher = rules.NewWatcher(options.Paths, options.Rules, rules.WatcherOptions{
		Debounce: options.Debounce, OnLoad: s.loaded, OnError: s.refused, Logger: options.Logger,
	})
	return s, nil
}

// Follow adds the rules of a store, which the set does not close. Call it before Load, if at all, and have the store's
// Options.Looked call Looked.
func (s *Set) Follow(store rulestore.Store) { s.store = store }

// Load puts the rules in force that there are: those of the files, or the safe default if they are not valid, and those of
// the store if it answers before ctx ends. It never fails: what is missing is logged, and Run goes on trying.
func (s *Set) Load(ctx context.Context) {
	if table, err := s.watcher.Load(); err == nil {
		s.loaded(table)
	} else {
		s.put(nil)
		s.options.Observer.SafeDefault()
		s.refused(err)
		limit := &s.options.Default
		s.options.Logger.ErrorContext(ctx, "no valid rules: every descriptor of every domain gets the default limit until the files are right",
			"limit", limit.Count, "window", limit.Window, "paths", s.options.Paths)
	}
	if s.store != nil {
		s.Looked(s.Refresh(ctx))
	}
}

// Run keeps the rules current until ctx ends. It must be called once, after Load.
func (s *Set) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { s.watcher.Run(ctx) })
	if s.store != nil {
		group.Go(func() { _ = s.store.Watch(ctx, s.Refresh) }) // it ends with ctx, or with the store
	}
}

// Reload loads the files again even if they have not changed. It returns at once.
func (s *Set) Reload() { s.watcher.Reload() }

// View returns what is in force now.
func (s *Set) View() *View { return s.view.Load() }

// Refresh puts the stored rules in force if they have changed since they were last read. The error is the store's or ctx's.
func (s *Set) Refresh(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.refresh(ctx)
}

// soon is how long reading all rules may take for Written to wait for it.
const soon = 50 * time.Millisecond

// Written puts a change in force that this replica has made, so that it counts for the next request. Where there are so
// many rules that this takes long, or ctx ends before, it leaves it to Run.
func (s *Set) Written(ctx context.Context) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return
	}
	if s.reading < soon {
		_ = s.refresh(ctx) // Run tries again
	}
}

// refresh is Refresh for who holds turn.
func (s *Set) refresh(ctx context.Context) error {
	revision, err := s.store.Revision(ctx)
	if err != nil || revision == s.revision {
		return err
	}
	began := time.Now()
	if s.revision != unread && s.unreadable == nil {
		if stored, reached, ok := s.caughtUp(ctx, revision); ok {
			s.replace(stored, nil)
			s.revision, s.reading = reached, time.Since(began)
			return nil
		}
	}
	stored := make([]rulestore.Rule, 0, len(s.stored))
	revision, err = s.store.All(ctx, func(rule *rulestore.Rule) error {
		stored = append(stored, *rule)
		return nil
	})
	if err != nil && !errors.Is(err, rulestore.ErrCorrupt) {
		return err
	}
	s.replace(stored, err)
	s.revision, s.reading = revision, time.Since(began)
	return nil
}

// replace puts other stored rules in force.
func (s *Set) replace(stored []rulestore.Rule, unreadable error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.stored
	s.stored, s.unreadable = stored, unreadable
	if unreadable != nil {
		s.options.Logger.Error("stored rules are not in force", "error", unreadable)
	}
	if err := s.apply(nil); err != nil {
		s.stored, s.unreadable = before, err
		s.options.Logger.Error("the stored rules were not loaded, those before stay in force", "error", err)
	} else {
		s.options.Logger.Debug("stored rules loaded", "rules", len(stored))
	}
	s.noteStored()
}

// loaded puts the files' rules in force, with the stored ones.
func (s *Set) loaded(table *rules.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.apply(table); err != nil {
		s.note(err)
		return
	}
	s.options.Observer.RulesLoaded()
	s.fileProblem.Store(nil)
	s.noteStored()
	for _, warning := range table.Warnings() {
		s.options.Logger.Warn("a rule is valid but probably not meant", "warning", warning.String())
	}
	s.options.Logger.Info("rules loaded", "rules", table.Len(), "domains", len(table.Domains()), "hash", short(table.Hash()))
}

// refused leaves the rules as they are.
func (s *Set) refused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(err)
}

func (s *Set) note(err error) {
	s.options.Observer.RulesRefused()
	text := err.Error()
	s.fileProblem.Store(&text)
	s.options.Logger.Error("the rules were not loaded, those before stay in force", "error", err)
}

// put is apply for what cannot fail.
func (s *Set) put(table *rules.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.apply(table); err != nil {
		s.note(err)
	}
}

// apply makes a table of the files' rules and the stored ones, and puts it in force. files are those of a new load; nil: as
// before. On an error nothing changes.
func (s *Set) apply(files *rules.Table) error {
	safe := s.safe && files == nil
	if files == nil {
		files = s.files
	}
	table := files
	var left []*rules.Definition
	if len(s.stored) > 0 {
		var err error
		if table, left, err = files.Extend(nil, sourceOf(s.stored)); err != nil {
			return fmt.Errorf("merge the stored rules: %w", err)
		}
	}
	s.files, s.safe = files, safe
	view := newView(table, files, safe, left)
	s.options.Install(table)
	s.view.Store(view)
	s.options.Observer.RulesInForce(table.Rules(), table.Hash()) // after Install, or the old rules' series come back
	s.options.Observer.StoredRules(len(s.stored)-len(left), len(left))
	return nil
}

// noteStored says which stored rules are not in force, and why.
func (s *Set) noteStored() {
	problem := s.unreadable
	if problem == nil {
		problem = s.overridden()
	}
	if problem == nil {
		s.storedProblem.Store(nil)
		return
	}
	text := problem.Error()
	s.storedProblem.Store(&text)
}

// overridden names the stored rules for whose places files have rules; nil if there are none.
func (s *Set) overridden() error {
	view := s.view.Load()
	n := len(view.overridden)
	if n == 0 {
		return nil
	}
	i := slices.IndexFunc(s.stored, func(rule rulestore.Rule) bool { return view.Overridden(rule.ID) })
	rule := &s.stored[i]
	err := fmt.Errorf("%d stored rules are not in force, because rule files have rules for the same places: %s (%s:%s) is one",
		n, rule.ID, rule.Scope, rule.IdentifierPattern)
	if last := s.storedProblem.Load(); last == nil || *last != err.Error() {
		s.options.Logger.Warn("stored rules are overridden by files: delete one or the other", "reason", err)
	}
	return err
}

func short(hash string) string { return hash[:min(len(hash), 12)] }
