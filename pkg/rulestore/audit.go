package rulestore

import (
	"encoding/json"
	"time"
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
