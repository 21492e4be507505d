package rulestore

import "fmt"

// Action is what a change does to a rule.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
)

// Change is one of the changes that Apply makes together.
type Change struct {
	Action Action
	// Rule is what is created or what the rule with its ID becomes; for Delete only its ID counts.
	Rule Rule
	// Version is the version that an update or a delete expects. 0: any.
	Version int64
}

// MaxChanges is the largest number of changes in one Apply.
const MaxChanges = 10_000

// MaxActorLength bounds each text of an Actor, in bytes.
const MaxActorLength = 256

// Actor is who makes a change, as the audit table keeps it. Both texts are UTF-8 without control characters.
type Actor struct {
	Subject   string // of the token; required
	RequestID string // by which logs find the request; may be empty
}

func (a Actor) validate() error {
	if a.Subject == "" {
		return fmt.Errorf("%w: the actor's subject is empty: name who makes the change", ErrInvalid)
	}
	if err := checkText("the actor's subject", a.Subject, MaxActorLength); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := checkText("the request id", a.RequestID, MaxActorLength); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
