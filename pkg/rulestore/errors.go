package rulestore

import (
	"errors"
	"fmt"
)

// The errors by which a caller decides. Every error of a Store wraps one of them, or the error of the caller's own context.
var (
	// ErrNotFound means that there is no rule with this ID.
	ErrNotFound = errors.New("no such rule")
	// ErrExists means that another rule has the same domain, scope and identifier pattern, or the same ID.
	ErrExists = errors.New("the rule exists already")
	// ErrStale means that the rule is no longer at the version that the caller has seen.
	ErrStale = errors.New("the rule was changed in the meantime")
	// ErrInvalid means that what was given cannot be stored or asked for.
	ErrInvalid = errors.New("invalid")
	// ErrUnavailable means that the database did not answer, or not as it should. It wraps the cause, which may name hosts,
	// users and files and is for logs, not for clients. A write that failed with it MAY have happened: read before retrying.
	ErrUnavailable = errors.New("the rule store is unavailable")
	// ErrNewer comes with ErrUnavailable when a newer version of weir has migrated the database to a schema that this one
	// does not know.
	ErrNewer = errors.New("the database belongs to a newer version")
	// ErrCorrupt means that a stored rule cannot be read: something else has written it. It can be deleted and replaced.
	ErrCorrupt = errors.New("the stored rule cannot be read")
)

// ChangeError tells which of the changes given to Apply was refused. Nothing of them was stored.
type ChangeError struct {
	Index int // into the changes
	Err   error
}

// Error names the change by its place, counted from 1.
func (e *ChangeError) Error() string { return fmt.Sprintf("change %d: %v", e.Index+1, e.Err) }

// Unwrap returns the reason.
func (e *ChangeError) Unwrap() error { return e.Err }
