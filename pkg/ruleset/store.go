package ruleset

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/rulestore"
)

// store is the source of rules made through the API.
type store struct {
	rulestore.Store
	slot  *Slot
	state atomic.Int32
	// turn is held while the store is read: a channel, because whoever waits for it may give up.
	turn chan struct{}
	// Under turn: the store's rules and their revision when it was last read; unread before the first time.
	revision   int64
	stored     []rulestore.Rule
	unreadable bool // some of them could not be read
	reading    time.Duration
}

const unread = -1

// What is known of the store.
const (
	unknown int32 = iota
	up
	down
)

// Name implements Source.
func (s *store) Name() string { return StoreSource }

// Load implements Source.
func (s *store) Load(ctx context.Context, slot *Slot) { slot.set.Looked(s.refreshInTurn(ctx)) }

// Run implements Source.
func (s *store) Run(ctx context.Context, _ *Slot) {
	_ = s.Watch(ctx, s.refreshInTurn) // it ends with ctx, or with the store
}

func (s *store) refreshInTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.refresh(ctx)
}

// soon is how long reading all rules may take for a writer to wait for it.
const soon = 50 * time.Millisecond

// written puts a change in force that this replica has made. Where there are so many rules that this takes long, or ctx ends
// before, it leaves it to Run.
func (s *store) written(ctx context.Context) {
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

// refresh puts the stored rules in force if they have changed since they were last read. The caller holds turn.
func (s *store) refresh(ctx context.Context) error {
	revision, err := s.Revision(ctx)
	if err != nil || revision == s.revision {
		return err
	}
	began := time.Now()
	if s.revision != unread && !s.unreadable {
		if stored, reached, ok := s.caughtUp(ctx, revision); ok {
			s.replace(stored, reached, nil)
			s.reading = time.Since(began)
			return nil
		}
	}
	stored := make([]rulestore.Rule, 0, len(s.stored))
	revision, err = s.All(ctx, func(rule *rulestore.Rule) error {
		stored = append(stored, *rule)
		return nil
	})
	if err != nil && !errors.Is(err, rulestore.ErrCorrupt) {
		return err
	}
	s.replace(stored, revision, err)
	s.reading = time.Since(began)
	return nil
}

// replace puts other stored rules in force. corrupt is about those that could not be read.
func (s *store) replace(stored []rulestore.Rule, revision int64, corrupt error) {
	s.revision, s.unreadable = revision, corrupt != nil
	logger := s.slot.set.options.Logger
	if corrupt != nil {
		logger.Error("stored rules are not in force", "error", corrupt)
	}
	if err := s.slot.putStored(stored, strconv.FormatInt(revision, 10), corrupt); err != nil {
		s.unreadable = true // so that all of them are read the next time
		logger.Error("the stored rules were not loaded, those before stay in force", "error", err)
		return
	}
	s.stored = stored
	logger.Debug("stored rules loaded", "rules", len(stored))
}

// putStored is Put for stored rules, of which corrupt says which could not be read.
func (s *Slot) putStored(stored []rulestore.Rule, version string, corrupt error) error {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	next := content{version: version, count: len(stored), since: time.Now()}
	if len(stored) > 0 {
		next.sources = []*rules.Source{sourceOf(stored)}
	}
	err := s.set.apply(s, next)
	if s.note = corrupt; err != nil {
		s.note = err
	}
	s.set.settled()
	return err
}
