package ruleset

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/rulestore"
)

// Set keeps the rules in force current. All its methods are safe for concurrent use, after Load.
type Set struct {
	options Options
	files   *files // nil: none
	store   *store // nil: none
	slots   []*Slot

	empty, safe *rules.Table // without rules; with the default limit for everything

	mu     sync.Mutex // held while a table is made and put in force
	view   atomic.Pointer[View]
	first  sync.Once
	loaded chan struct{}
}

// New prepares a set of rules from files, if Options name any. The error wraps ratelimit.ErrLimit: the default cannot be.
func New(options Options) (*Set, error) {
	if options.Observer == nil {
		options.Observer = unobserved{}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Set{options: options, loaded: make(chan struct{})}
	var err error
	if s.safe, err = rules.Safe(options.Default); err != nil {
		return nil, err
	}
	if s.empty, err = rules.Compile(options.Rules); err != nil {
		return nil, err
	}
	if len(options.Paths) > 0 {
		s.files = newFiles(&options)
		s.add(s.files, "rules of files")
	}
	return s, nil
}

// Add adds a source, which yields to those that were added before it. noun is what its rules are called, as in "stored rules". Call
// it before Load, if at all.
func (s *Set) Add(source Source, noun string) { s.add(source, noun) }

func (s *Set) add(source Source, noun string) *Slot {
	slot := &Slot{set: s, source: source, noun: noun}
	s.slots = append(s.slots, slot)
	return slot
}

// Follow adds the rules of a store, which the set does not close. Call it before Load, if at all, after the last Add, and have the
// store's Options.Looked call Looked.
func (s *Set) Follow(from rulestore.Store) {
	s.store = &store{Store: from, turn: make(chan struct{}, 1), revision: unread}
	s.store.slot = s.add(s.store, "stored rules")
}

// Load puts the rules in force that there are: of each source what it has, before ctx ends. It never fails: what is missing is
// logged, and Run goes on trying. If files are all there is, and they are not valid, the default limit applies to everything.
func (s *Set) Load(ctx context.Context) {
	s.mu.Lock()
	s.install(s.base())
	s.mu.Unlock()
	for _, slot := range s.slots {
		slot.load(ctx)
	}
	if s.guarded() && s.slots[0].empty() {
		s.options.Observer.SafeDefault()
		limit := &s.options.Default
		s.options.Logger.ErrorContext(ctx, "no valid rules: every descriptor of every domain gets the default limit until the files are right",
			"limit", limit.Count, "window", limit.Window, "paths", s.options.Paths)
	}
}

// Run keeps the rules current until ctx ends. It must be called once, after Load.
func (s *Set) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for _, slot := range s.slots {
		group.Go(func() { slot.run(ctx) })
	}
}

// Reload loads the files again even if they have not changed. It returns at once.
func (s *Set) Reload() {
	if s.files != nil {
		s.files.watcher.Reload()
	}
}

// View returns what is in force now.
func (s *Set) View() *View { return s.view.Load() }

// Loaded is closed once files, or a source that was added, have given rules for the first time.
func (s *Set) Loaded() <-chan struct{} { return s.loaded }

// Sources tells what each source contributes to the rules in force, in the order of their precedence. It does not wait for rules
// that are being compiled.
func (s *Set) Sources() []State {
	states := make([]State, len(s.slots))
	for i, slot := range s.slots {
		states[i] = slot.state()
	}
	return states
}

// Refresh puts the stored rules in force if they have changed since they were last read. The error is the store's or ctx's.
func (s *Set) Refresh(ctx context.Context) error {
	if s.store == nil {
		return nil
	}
	return s.store.refreshInTurn(ctx)
}

// Written puts a change of the store in force that this replica has made, so that it counts for the next request. Where there are
// so many rules that this takes long, or ctx ends before, it leaves it to Run.
func (s *Set) Written(ctx context.Context) {
	if s.store != nil {
		s.store.written(ctx)
	}
}

// guarded tells whether the default limit applies while there are no valid files. With a control plane it does not: before that has
// said something, nothing is limited.
func (s *Set) guarded() bool {
	return s.files != nil && !s.options.NoDefault && !slices.ContainsFunc(s.slots, func(slot *Slot) bool {
		name := slot.source.Name()
		return name != FilesSource && name != StoreSource
	})
}

// base is what there is before any source has said something.
func (s *Set) base() *rules.Table {
	if s.guarded() {
		return s.safe
	}
	return s.empty
}

// apply makes a table of what all sources say, with something else from one of them, and puts it in force. On an error nothing
// changes. The caller holds mu.
func (s *Set) apply(changed *Slot, next content) error {
	type stage struct {
		table *rules.Table
		left  []rules.Left
	}
	stages := make([]stage, len(s.slots))
	table := s.base()
	unchanged := true
	for i, slot := range s.slots {
		content := &slot.content
		if slot == changed {
			content, unchanged = &next, false
		}
		var left []rules.Left
		switch {
		case unchanged && slot.merged != nil:
			table, left = slot.merged, slot.left
		case content.empty():
		case content.table != nil && (i == 0 || table == s.empty):
			table = content.table
		case len(content.sources) > 0:
			var err error
			if table, left, err = table.Extend([]*rules.Table{slot.merged, content.table}, content.sources...); err != nil {
				return fmt.Errorf("merge the %s: %w", slot.noun, err)
			}
		}
		stages[i] = stage{table, left}
	}
	changed.content = next
	for i, slot := range s.slots {
		slot.merged, slot.left = stages[i].table, stages[i].left
	}
	s.install(table)
	return nil
}

// install puts a table in force. The caller holds mu.
func (s *Set) install(table *rules.Table) {
	fixed := table // without the stored rules
	var stored *Slot
	if s.store != nil {
		stored = s.store.slot
		if fixed = s.base(); len(s.slots) > 1 && s.slots[len(s.slots)-2].merged != nil {
			fixed = s.slots[len(s.slots)-2].merged
		}
	}
	view := newView(table, fixed, stored)
	s.options.Install(table)
	s.view.Store(view)
	observer := s.options.Observer
	observer.RulesInForce(table.Rules(), table.Hash()) // after Install, or the old rules' series come back
	if stored != nil {
		observer.StoredRules(stored.count-len(stored.left), len(stored.left))
	}
}

// settled brings up to date what is told of each source. The caller holds mu.
func (s *Set) settled() {
	for _, slot := range s.slots {
		if !slot.empty() {
			slot.told.Store(&State{Source: slot.source.Name(), Version: slot.version, Rules: slot.count, Since: slot.since})
			slot.settled()
			s.options.Observer.RulesFrom(slot.source.Name(), slot.version, slot.count)
		}
	}
}

// before names the sources that a source yields to.
func (s *Set) before(slot *Slot) string {
	var names []string
	for _, each := range s.slots {
		if each == slot {
			break
		}
		if each.source.Name() == FilesSource {
			names = append(names, "rule files")
		} else {
			names = append(names, "source "+each.source.Name())
		}
	}
	return strings.Join(names, " or ")
}
