package k1s0

import (
	"encoding/json"
	"net/http"

	"github.com/weirhq/weir/pkg/rulestore"
)

type usageBody struct {
	RuleID        string       `json:"rule_id"`
	RuleName      string       `json:"rule_name"`
	Limit         int64        `json:"limit"`
	WindowSeconds int64        `json:"window_seconds"`
	Algorithm     string       `json:"algorithm"`
	Enabled       bool         `json:"enabled"`
	Used          *int64       `json:"used,omitempty"`
	Remaining     *int64       `json:"remaining,omitempty"`
	ResetAt       *int64       `json:"reset_at,omitempty"`
	Results       []resultBody `json:"results,omitempty"`
}

func (s *Service) restUsage(c *call) error {
	q := readQuery(c.Request)
	id, subject := q.text("rule_id"), q.text("subject")
	var f faults
	f.require("rule_id", id)
	if err := q.with(f.err()); err != nil {
		return err
	}
	usage, err := s.Usage(c.Context(), id, subject)
	if err != nil {
		return err
	}
	rule := bodyOf(usage.Rule)
	body := usageBody{
		RuleID: rule.ID, RuleName: rule.Name, Limit: rule.Limit, WindowSeconds: rule.WindowSeconds,
		Algorithm: rule.Algorithm, Enabled: rule.Enabled,
	}
	if usage.Counted {
		body.Used, body.Remaining, body.ResetAt, body.Results = &usage.Used, &usage.Remaining, &usage.ResetAt, resultBodies(usage.Results)
	}
	c.answer(http.StatusOK, body)
	return nil
}

type resetBody struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
}

func (s *Service) restReset(c *call) error {
	body, err := readBody(c.Request)
	if err != nil {
		return err
	}
	scope, identifier, window := body.text("scope"), body.text("identifier"), body.window("window")
	if body.rest(); len(body.faults) > 0 {
		var f faults
		s.identified(&f, scope, identifier)
		f.window("window", window)
		return join(body.faults, f.err())
	}
	who, err := s.Reset(c.Context(), c.caller, scope, identifier, window)
	if err != nil {
		return err
	}
	c.answer(http.StatusOK, resetBody{true, resetMessage(who)})
	return nil
}

func resetMessage(who string) string { return "rate limit counter reset for " + who }

type auditBody struct {
	Entries []auditEntry `json:"entries"`
	// NextBefore continues the listing; absent at its end.
	NextBefore int64 `json:"next_before,omitempty"`
}

type auditEntry struct {
	Seq       int64           `json:"seq"`
	At        *string         `json:"at"`
	Subject   string          `json:"subject"`
	RequestID string          `json:"request_id"`
	Action    string          `json:"action"`
	RuleID    string          `json:"rule_id"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
}

func (s *Service) restAudit(c *call) error {
	q := readQuery(c.Request)
	filter := rulestore.AuditFilter{RuleID: q.text("rule_id"), Subject: q.text("subject"), Before: q.integer("before", 0)}
	limit := q.integer("limit", DefaultPageSize)
	var f faults
	f.between("limit", limit, MaxPageSize)
	if filter.Before < 0 {
		f.add("before", "must not be negative")
	}
	if err := q.with(f.err()); err != nil {
		return err
	}
	filter.Limit = int(limit)
	if s.Store == nil || filter.RuleID != "" && !isUUID(filter.RuleID) {
		c.answer(http.StatusOK, auditBody{Entries: []auditEntry{}})
		return nil
	}
	entries, err := s.Store.Audit(c.Context(), filter)
	if err != nil {
		return err
	}
	body := auditBody{Entries: make([]auditEntry, len(entries))}
	for i := range entries {
		e := &entries[i]
		body.Entries[i] = auditEntry{e.Seq, shownTime(e.At), e.Subject, e.RequestID, string(e.Action), e.RuleID, e.Before, e.After}
	}
	if n := len(entries); n == filter.Limit {
		body.NextBefore = entries[n-1].Seq
	}
	c.answer(http.StatusOK, body)
	return nil
}
