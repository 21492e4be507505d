package ruleset

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/pkg/rules"
)

// maxWarnings bounds the lines that one load may log.
const maxWarnings = 100

// Slot takes what one source says. Its methods are safe for concurrent use.
type Slot struct {
	set    *Set
	source Source
	// noun is what its rules are called: "stored rules".
	noun string

	// Under the set's mu:
	content
	merged *rules.Table // of this source and those before it
	left   []rules.Left // what is not in force because a source before it has rules for the same places
	note   error        // something else that is not in force

	problem atomic.Pointer[string] // nil: all is in force
	told    atomic.Pointer[State]  // without the problem; nil: the source has said nothing yet
}

// Put puts the rules of a table in force, in place of those that the source put before, along with those of the other sources. version,
// which must not be empty, is what the source calls them. If it returns an error nothing has changed.
func (s *Slot) Put(table *rules.Table, version string) error {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	next := content{table: table, sources: table.Sources(), version: version, count: table.Len(), since: time.Now()}
	same := s.table == table
	if same {
		s.content = next
	} else if err := s.set.apply(s, next); err != nil {
		s.refused(err)
		return err
	}
	s.note = nil
	options := &s.set.options
	options.Observer.RulesLoaded()
	s.set.settled()
	s.set.first.Do(func() { close(s.set.loaded) })
	logger := options.Logger.With("source", s.source.Name(), "version", version, "rules", next.count)
	if same {
		logger.Debug("rules are as they were")
		return nil
	}
	for i, warning := range table.Warnings() {
		if i == maxWarnings {
			logger.Warn("more rules are valid but probably not meant: weir validate shows all of a file's")
			break
		}
		logger.Warn("a rule is valid but probably not meant", "warning", warning.String())
	}
	logger.Info("rules loaded", "domains", len(table.Domains()), "hash", short(table.Hash()))
	return nil
}

// Refuse tells that the source has rules that cannot be in force, and why. Those before them stay.
func (s *Slot) Refuse(err error) {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	s.refused(err)
}

// refused is Refuse for who holds mu.
func (s *Slot) refused(err error) {
	s.set.options.Observer.RulesRefused()
	text := err.Error()
	s.problem.Store(&text)
	s.set.options.Logger.Error("the rules were not loaded, those before stay in force", "source", s.source.Name(), "error", err)
}

// settled brings up to date what is not in force of a source that has changed, or that another one's change may concern.
func (s *Slot) settled() {
	reason := s.note
	if reason == nil {
		reason = s.overridden()
	}
	if reason == nil {
		s.problem.Store(nil)
		return
	}
	text := reason.Error()
	s.problem.Store(&text)
}

// overridden names the rules for whose places sources before it have rules; nil if there are none.
func (s *Slot) overridden() error {
	if len(s.left) == 0 {
		return nil
	}
	one := &s.left[0]
	err := fmt.Errorf("%d %s are not in force, because %s have rules for the same places: %s (%s) is one",
		len(s.left), s.noun, s.set.before(s), named(one), one.Key+":"+anyOr(one.Value))
	if last := s.problem.Load(); last == nil || *last != err.Error() {
		s.set.options.Logger.Warn("rules are overridden: delete one or the other", "rules", s.noun, "source", s.source.Name(), "reason", err)
	}
	return err
}

func named(d *rules.Left) string {
	if d.ID != "" {
		return d.ID
	}
	return "one of domain " + d.Domain
}

func anyOr(value string) string {
	if value == "" {
		return anyIdentifier
	}
	return value
}

// state is what the source contributes.
func (s *Slot) state() State {
	state := State{Source: s.source.Name()}
	if told := s.told.Load(); told != nil {
		state = *told
	}
	if problem := s.problem.Load(); problem != nil {
		state.Problem = firstOf(*problem)
	}
	return state
}

// firstOf is the first of several problems, with how many more there are.
func firstOf(problems string) string {
	first, rest, more := strings.Cut(problems, "\n")
	if more {
		first = fmt.Sprintf("%s (and %d more)", first, 1+strings.Count(rest, "\n"))
	}
	return first
}

func (s *Slot) load(ctx context.Context) { s.source.Load(ctx, s) }
func (s *Slot) run(ctx context.Context)  { s.source.Run(ctx, s) }
