package ruleset

import (
	"context"
	"errors"
)

// ErrStore is what StoreReady returns while the rule store does not answer.
var ErrStore = errors.New("the rule store does not answer: the rules in memory stay in force and cannot be changed through the API")

// Ready returns why not all rules are in force, nil if they are. It does not tell more than the first problem.
func (s *Set) Ready(context.Context) error {
	for _, slot := range s.slots {
		if problem := slot.problem.Load(); problem != nil {
			return errors.New(firstOf(*problem))
		}
	}
	return nil
}

// StoreReady returns ErrStore while the rule store does not answer, as far as the last look at it tells.
func (s *Set) StoreReady(context.Context) error {
	if s.store == nil || s.store.state.Load() == up {
		return nil
	}
	return ErrStore
}

// Looked takes what came of a look at the rule store.
func (s *Set) Looked(err error) {
	if s.store == nil {
		return // it looks at itself before it is followed
	}
	state := up
	if err != nil {
		state = down
	}
	s.options.Observer.RuleStoreUp(state == up)
	switch last := s.store.state.Swap(state); {
	case last == state:
	case state == down:
		s.options.Logger.Error("the rule store does not answer: the rules in memory stay in force", "error", err)
	case last == down:
		s.options.Logger.Info("the rule store answers again")
	}
}
