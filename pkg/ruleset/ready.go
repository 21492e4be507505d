package ruleset

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrStore is what StoreReady returns while the rule store does not answer.
var ErrStore = errors.New("the rule store does not answer: the rules in memory stay in force and cannot be changed through the API")

// Ready returns why not all rules are in force, nil if they are. It does not tell more than the first problem.
func (s *Set) Ready(context.Context) error {
	for _, problem := range []*string{s.fileProblem.Load(), s.storedProblem.Load()} {
		if problem == nil {
			continue
		}
		first, rest, more := strings.Cut(*problem, "\n")
		if more {
			first = fmt.Sprintf("%s (and %d more)", first, 1+strings.Count(rest, "\n"))
		}
		return errors.New(first)
	}
	return nil
}

// StoreReady returns ErrStore while the rule store does not answer, as far as the last look at it tells.
func (s *Set) StoreReady(context.Context) error {
	if s.store == nil || s.storeState.Load() == up {
		return nil
	}
	return ErrStore
}

// Looked takes what came of a look at the rule store.
func (s *Set) Looked(err error) {
	state := up
	if err != nil {
		state = down
	}
	s.options.Observer.RuleStoreUp(state == up)
	switch last := s.storeState.Swap(state); {
	case last == state:
	case state == down:
		s.options.Logger.Error("the rule store does not answer: the rules in memory stay in force", "error", err)
	case last == down:
		s.options.Logger.Info("the rule store answers again")
	}
}
