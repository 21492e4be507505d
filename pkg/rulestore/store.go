package rulestore

import (
	"context"
	"fmt"
	"math"
)

// Bounds of a page.
const (
	DefaultPageSize = 20
	MaxPageSize     = 1000
)

// Filter chooses a page of rules. Zero fields do not filter.
type Filter struct {
	Domain      string
	Scope       string
	EnabledOnly bool
	Page        int // from 1; 0 means 1. A page past the end is empty
	PageSize    int // 1 to MaxPageSize; 0 means DefaultPageSize
	// Offset is how many rules come before the first page, for a listing that begins with rules from elsewhere.
	Offset int64
}

// Store keeps rules. It is safe for concurrent use.
//
// No call outlasts its context or Options.Timeout (All and Apply: LoadTimeout), whichever ends first, whatever the database
// does. Rules are listed in the order of their creation. Writes are serial: each counts the revision up by one and is seen
// whole or not at all.
type Store interface {
	// Create stores a new rule and returns it with what the store has set: ID if it had none, times, version 1.
	// ErrExists, ErrInvalid.
	Create(ctx context.Context, rule Rule, actor Actor) (Rule, error)
	// Get returns the rule with an ID. ErrNotFound, also for what is no UUID.
	Get(ctx context.Context, id string) (Rule, error)
	// List returns a page of rules, and how many there are on all pages.
	List(ctx context.Context, filter Filter) (rules []Rule, total int64, err error)
	// Update replaces the rule whose ID rule has and returns what is stored now. A version above 0 must be the stored
	// rule's, else ErrStale. ErrNotFound, ErrExists, ErrInvalid.
	Update(ctx context.Context, rule Rule, version int64, actor Actor) (Rule, error)
	// Delete removes a rule; version as in Update. ErrNotFound, ErrStale.
	Delete(ctx context.Context, id string, version int64, actor Actor) error
	// Apply makes up to MaxChanges changes in one transaction, all or none: first the deletes, then the updates, then the
	// creations. It returns the rules created and updated in the places of their changes. One rule must not occur twice, and
	// two updates cannot swap their matches. A refused change is a *ChangeError that wraps one of the errors above.
	Apply(ctx context.Context, changes []Change, actor Actor) ([]Rule, error)

	// All calls each for every rule, disabled ones included, in one consistent view, and returns the revision of that view.
	// An error from each ends it and is returned. The pointer is valid during the call only. Rules that cannot be read are
	// passed over: the error then wraps ErrCorrupt and names them, and the revision is that of the view all the same.
	All(ctx context.Context, each func(*Rule) error) (revision int64, err error)
	// Revision returns a number that grows with every change. It is cheap.
	Revision(ctx context.Context) (int64, error)
	// Watch calls changed once when the database first answers and again whenever the revision has changed, however many
	// changes that were, until ctx ends or the store is closed, and returns why it ended. An error from changed makes it call
	// again, after a pause that grows up to 2 s. Calls are never concurrent within one Watch. It outlives every failure of
	// the database.
	Watch(ctx context.Context, changed func(context.Context) error) error

	// Audit returns audit entries, newest first.
	Audit(ctx context.Context, filter AuditFilter) ([]AuditEntry, error)

	// Ping reports whether the database answers and has the schema that this version needs.
	Ping(ctx context.Context) error
	// Close ends every Watch and releases the connections. Calls after it, and those that it cuts short, fail with
	// ErrUnavailable. Calling it again does nothing.
	Close() error
}

// window returns the limit and offset of a page.
func (f Filter) window() (limit, offset int64, err error) {
	page, size := int64(f.Page), int64(f.PageSize)
	if page == 0 {
		page = 1
	}
	if size == 0 {
		size = DefaultPageSize
	}
	if page < 1 {
		return 0, 0, fmt.Errorf("%w: page %d is out of range: write 1 or more", ErrInvalid, f.Page)
	}
	if size < 1 || size > MaxPageSize {
		return 0, 0, fmt.Errorf("%w: page size %d is out of range: write 1 to %d", ErrInvalid, f.PageSize, MaxPageSize)
	}
	if f.Offset < 0 {
		return 0, 0, fmt.Errorf("%w: page offset %d is negative: write 0 or more", ErrInvalid, f.Offset)
	}
	if page-1 > (math.MaxInt64-f.Offset)/size {
		return size, math.MaxInt64, nil
	}
	return size, f.Offset + (page-1)*size, nil
}
