package rulestore

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// AuditEntry is one change of one rule.
type AuditEntry struct {
	Seq       int64     // grows with every entry, not always by one
	Revision  int64     // of the store after the change; all entries of one Apply share it
	At        time.Time // in UTC, whole milliseconds
	Subject   string
	RequestID string
	Action    Action
	RuleID    string
	// Before and After are the whole rule as a JSON object with the field names of the API. Before is nil for Create, After
	// for Delete.
	Before, After json.RawMessage
}

// AuditFilter chooses audit entries. Zero fields do not filter.
type AuditFilter struct {
	RuleID  string // a UUID
	Subject string
	// Before continues a listing: only entries whose Seq is smaller. Give the Seq of the last entry seen.
	Before int64
	Limit  int // how many entries at most: 1 to MaxPageSize; 0 means DefaultPageSize
}

// Rule returns what the rule became, nil if it was deleted. The error wraps ErrCorrupt: something else wrote the entry, or a
// newer version did.
func (e *AuditEntry) Rule() (*Rule, error) {
	if e.After == nil {
		return nil, nil
	}
	rule, err := parseDocument(e.After)
	if err != nil {
		return nil, fmt.Errorf("%w: audit entry %d: %s", ErrCorrupt, e.Seq, err.Error())
	}
	return rule, nil
}

func parseDocument(text []byte) (*Rule, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	algorithm, err := ratelimit.ParseAlgorithm(d.Algorithm)
	if err != nil {
		return nil, err
	}
	rule := &Rule{
		ID: d.ID, Domain: d.Domain, Scope: d.Scope, IdentifierPattern: d.IdentifierPattern, Enabled: d.Enabled,
		Name: d.Name, Limit: d.Limit, WindowSeconds: d.WindowSeconds, Algorithm: algorithm, Burst: d.Burst, Version: d.Version,
	}
	if rule.CreatedAt, err = time.Parse(documentTime, d.CreatedAt); err != nil {
		return nil, err
	}
	if rule.UpdatedAt, err = time.Parse(documentTime, d.UpdatedAt); err != nil {
		return nil, err
	}
	if err := rule.Validate(); err != nil {
		return nil, err
	}
	return rule, nil
}
