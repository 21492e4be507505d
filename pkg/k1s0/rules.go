package k1s0

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir/pkg/ruleset"
	"github.com/weirhq/weir/pkg/rulestore"
)

// Bounds of a page.
const (
	DefaultPageSize = 20
	MaxPageSize     = 100
)

// Create stores a new rule.
func (s *Service) Create(ctx context.Context, caller Caller, in RuleInput) (*Rule, error) {
	if err := s.writable(&in); err != nil {
		return nil, err
	}
	stored, err := s.Store.Create(ctx, in.stored(s.Domain), caller.actor())
	return s.written(ctx, caller, "created", in, stored, err)
}

// Update replaces a stored rule. A version above 0 must be the rule's.
func (s *Service) Update(ctx context.Context, caller Caller, id string, in RuleInput, version int64) (*Rule, error) {
	if err := s.changeable(id, version); err != nil {
		return nil, err
	}
	if err := s.writable(&in); err != nil {
		return nil, err
	}
	rule := in.stored(s.Domain)
	rule.ID = id
	stored, err := s.Store.Update(ctx, rule, version, caller.actor())
	if errors.Is(err, rulestore.ErrNotFound) {
		return nil, ruleNotFound(id)
	}
	return s.written(ctx, caller, "updated", in, stored, err)
}

// Delete removes a stored rule. version is as in Update.
func (s *Service) Delete(ctx context.Context, caller Caller, id string, version int64) error {
	if err := s.changeable(id, version); err != nil {
		return err
	}
	if s.Store == nil {
		return ruleNotFound(id)
	}
	err := s.Store.Delete(ctx, id, version, caller.actor())
	if errors.Is(err, rulestore.ErrNotFound) {
		return ruleNotFound(id)
	}
	if err != nil {
		return asError(err)
	}
	s.Logger.InfoContext(ctx, "rule deleted", "rule_id", id, "subject", caller.Subject, "request_id", caller.RequestID)
	s.Rules.Written(ctx)
	return nil
}

// changeable refuses to change what a file holds.
func (s *Service) changeable(id string, version int64) error {
	var f faults
	f.require("rule_id", id)
	if version < 0 {
		f.add("version", "must not be negative")
	}
	if err := f.err(); err != nil {
		return err
	}
	if fixed := s.Rules.View().FileRule(id); fixed != nil {
		where := "is in a rule file"
		if ruleset.FromControlPlane(fixed) {
			where = "comes from a control plane"
		}
		return &Error{Code: CodeReadOnly, Message: "the rule " + where + ": change it there"}
	}
	if !isUUID(id) {
		return ruleNotFound(id) // the store has no such IDs
	}
	return nil
}

// writable refuses rules that cannot be, and those for whose place a file has a rule.
func (s *Service) writable(in *RuleInput) error {
	if err := validateRule(in); err != nil {
		return err
	}
	if s.Store == nil {
		return &Error{Code: CodeUnavailable, Message: "this server keeps no rules of its own: database.host and database.path are empty"}
	}
	if s.Rules.View().Taken(s.Domain, in.Scope, in.Pattern) {
		return &Error{Code: CodeRuleExists, Message: fmt.Sprintf("a rule file has a rule for %s: change it there", shortened(in.Scope+":"+in.Pattern))}
	}
	return nil
}

// written is the end of Create and Update.
func (s *Service) written(ctx context.Context, caller Caller, what string, in RuleInput, stored rulestore.Rule, err error) (*Rule, error) {
	if errors.Is(err, rulestore.ErrExists) {
		return nil, &Error{Code: CodeRuleExists, Message: fmt.Sprintf("there is a rule for %s already: change that one", shortened(in.Scope+":"+in.Pattern)), cause: err}
	}
	if err != nil {
		return nil, asError(err)
	}
	s.Logger.InfoContext(ctx, "a rule was written", "change", what, "rule_id", stored.ID, "version", stored.Version, "subject", caller.Subject, "request_id", caller.RequestID)
	s.Rules.Written(ctx)
	rule := s.storedRule(&stored)
	return &rule, nil
}

// Get returns a rule of a file or of the store.
func (s *Service) Get(ctx context.Context, id string) (*Rule, error) {
	var f faults
	if !f.require("rule_id", id) {
		return nil, f.err()
	}
	if compiled := s.Rules.View().FileRule(id); compiled != nil {
		rule := s.fileRule(compiled)
		return &rule, nil
	}
	if s.Store == nil {
		return nil, ruleNotFound(id)
	}
	stored, err := s.Store.Get(ctx, id)
	if errors.Is(err, rulestore.ErrNotFound) {
		return nil, ruleNotFound(id)
	}
	if err != nil {
		return nil, asError(err)
	}
	rule := s.storedRule(&stored)
	return &rule, nil
}

// Filter chooses a page of rules.
type Filter struct {
	Scope       string // empty: every scope
	EnabledOnly bool
	Page        int64 // from 1
	PageSize    int64 // 1 to MaxPageSize
}

// Page is a part of all rules that a filter lets through.
type Page struct {
	Rules        []Rule
	Total        int64
	Number, Size int64
	HasNext      bool
}

// List returns a page: first the rules of files, then those of the store in the order of their creation.
func (s *Service) List(ctx context.Context, filter Filter) (*Page, error) {
	if err := filter.validate(); err != nil {
		return nil, err
	}
	page := &Page{Number: filter.Page, Size: filter.PageSize}
	first := (filter.Page - 1) * filter.PageSize
	files := s.fileRules(filter)
	if first < int64(len(files)) {
		page.Rules = files[first:min(first+filter.PageSize, int64(len(files)))]
	}
	page.Total = int64(len(files))
	if s.Store != nil {
		missing := filter.PageSize - int64(len(page.Rules))
		stored, total, err := s.Store.List(ctx, rulestore.Filter{
			Scope: filter.Scope, EnabledOnly: filter.EnabledOnly,
			PageSize: int(max(missing, 1)), Offset: max(first-int64(len(files)), 0),
		})
		if err != nil {
			return nil, asError(err)
		}
		page.Total += total
		for i := range stored[:min(int64(len(stored)), missing)] {
			page.Rules = append(page.Rules, s.storedRule(&stored[i]))
		}
	}
	page.HasNext = first+int64(len(page.Rules)) < page.Total && len(page.Rules) > 0
	return page, nil
}

// maxPage keeps a page's offset in an int64.
const maxPage = 1 << 40

func (filter *Filter) validate() error {
	var f faults
	f.printable("scope", filter.Scope, rulestore.MaxScopeLength)
	f.between("page", filter.Page, maxPage)
	f.between("page_size", filter.PageSize, MaxPageSize)
	return f.err()
}

func (s *Service) fileRules(filter Filter) []Rule {
	compiled := s.Rules.View().Files
	files := make([]Rule, 0, len(compiled))
	for _, each := range compiled {
		rule := s.fileRule(each)
		if (filter.Scope == "" || rule.Scope == filter.Scope) && (!filter.EnabledOnly || rule.Enabled) {
			files = append(files, rule)
		}
	}
	return files
}
