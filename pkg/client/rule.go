package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	ratelimitv1 "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

// Rule is a rule as the server has it, with the field names of the REST API. One from a file may have more limits than one;
// Limit, WindowSeconds, Algorithm and Burst are those of the first.
type Rule struct {
	ID                string      `json:"id" yaml:"id"`
	Name              string      `json:"name" yaml:"name"`
	Domain            string      `json:"domain,omitempty" yaml:"domain,omitempty"`
	Scope             string      `json:"scope" yaml:"scope"`
	IdentifierPattern string      `json:"identifier_pattern" yaml:"identifier_pattern"`
	Limit             int64       `json:"limit" yaml:"limit"`
	WindowSeconds     int64       `json:"window_seconds" yaml:"window_seconds"`
	Algorithm         string      `json:"algorithm" yaml:"algorithm"`
	Burst             int64       `json:"burst,omitempty" yaml:"burst,omitempty"`
	Enabled           bool        `json:"enabled" yaml:"enabled"`
	Source            string      `json:"source,omitempty" yaml:"source,omitempty"` // "api", or "file" or "xds", which are read-only
	Path              string      `json:"path,omitempty" yaml:"path,omitempty"`     // where it stands in its domain
	Action            string      `json:"action,omitempty" yaml:"action,omitempty"` // limit, allow or deny
	Limits            []RuleLimit `json:"limits,omitempty" yaml:"limits,omitempty"`
	// Conflict says why a stored rule that is enabled is not in force; else empty.
	Conflict string `json:"conflict,omitempty" yaml:"conflict,omitempty"`
	// CreatedAt and UpdatedAt are zero for a file's rule.
	CreatedAt time.Time `json:"created_at,omitzero" yaml:"created_at,omitempty"`
	UpdatedAt time.Time `json:"updated_at,omitzero" yaml:"updated_at,omitempty"`
	// Version grows by one with every update; 0 for a file's rule.
	Version int64 `json:"version,omitempty" yaml:"version,omitempty"`
}

// Key is SCOPE:IDENTIFIER_PATTERN, which no two stored rules share.
func (r *Rule) Key() string { return r.Scope + ":" + r.IdentifierPattern }

// RuleLimit is one limit of a rule.
type RuleLimit struct {
	Name               string `json:"name,omitempty" yaml:"name,omitempty"`
	Algorithm          string `json:"algorithm" yaml:"algorithm"`
	Limit              int64  `json:"limit" yaml:"limit"`
	WindowMilliseconds int64  `json:"window_ms" yaml:"window_ms"`
	Burst              int64  `json:"burst,omitempty" yaml:"burst,omitempty"`
	Kind               string `json:"kind,omitempty" yaml:"kind,omitempty"`         // protection or quota
	Calendar           string `json:"calendar,omitempty" yaml:"calendar,omitempty"` // month or year, for windows of the calendar
}

// RuleSpec is what a rule is to be. Scope, IdentifierPattern, Limit and WindowSeconds are required.
type RuleSpec struct {
	Name              string // empty: SCOPE-IDENTIFIER_PATTERN
	Scope             string // service, user or endpoint
	IdentifierPattern string // "*", an exact value or a wildcard
	Limit             int64  // at least 1
	WindowSeconds     int64  // at least 1
	Algorithm         string // empty: token_bucket
	Burst             int64  // of a bucket; 0: the algorithm's default
	Enabled           *bool  // nil: true
}

// Key is SCOPE:IDENTIFIER_PATTERN.
func (s *RuleSpec) Key() string { return s.Scope + ":" + s.IdentifierPattern }

// CreateRule stores a new rule. ErrExists, ErrInvalid. Needs the role sys_operator.
func (c *Client) CreateRule(ctx context.Context, spec RuleSpec) (Rule, error) {
	reply, err := call(ctx, c, false, &ratelimitv1.CreateRuleRequest{
		Name: spec.Name, Key: spec.Key(), Limit: spec.Limit, WindowSecs: spec.WindowSeconds, Algorithm: spec.Algorithm,
		Burst: spec.Burst, Enabled: spec.Enabled,
	}, c.service.CreateRule)
	return ruleOf(reply.GetRule()), err
}

// GetRule returns the rule with an ID. ErrNotFound. Needs the role sys_auditor.
func (c *Client) GetRule(ctx context.Context, id string) (Rule, error) {
	reply, err := call(ctx, c, true, &ratelimitv1.GetRuleRequest{RuleId: id}, c.service.GetRule)
	return ruleOf(reply.GetRule()), err
}

// UpdateRule replaces the rule with an ID. A version above 0 must be the stored rule's. ErrNotFound, ErrStale, ErrReadOnly,
// ErrExists, ErrInvalid. Needs the role sys_operator.
func (c *Client) UpdateRule(ctx context.Context, id string, version int64, spec RuleSpec) (Rule, error) {
	reply, err := call(ctx, c, false, &ratelimitv1.UpdateRuleRequest{
		RuleId: id, Version: version, Name: spec.Name, Key: spec.Key(), Limit: spec.Limit, WindowSecs: spec.WindowSeconds,
		Algorithm: spec.Algorithm, Burst: spec.Burst, Enabled: spec.Enabled,
	}, c.service.UpdateRule)
	return ruleOf(reply.GetRule()), err
}

// DeleteRule deletes the rule with an ID; version as in UpdateRule. ErrNotFound, ErrStale, ErrReadOnly. Needs the role
// sys_admin.
func (c *Client) DeleteRule(ctx context.Context, id string, version int64) error {
	_, err := call(ctx, c, false, &ratelimitv1.DeleteRuleRequest{RuleId: id, Version: version}, c.service.DeleteRule)
	return err
}

// RuleFilter chooses rules. Zero fields do not filter.
type RuleFilter struct {
	Scope       string
	EnabledOnly bool
	Page        int64 // from 1; 0: 1
	PageSize    int64 // 1 to 100; 0: 20
}

// RulePage is a page of rules.
type RulePage struct {
	Rules      []Rule
	TotalCount int64 // on all pages
	Page       int64
	PageSize   int64
	HasNext    bool
}

// ListRules returns a page of rules: rule files' first, then the store's in the order of creation. Needs the role sys_auditor.
func (c *Client) ListRules(ctx context.Context, filter RuleFilter) (RulePage, error) {
	reply, err := call(ctx, c, true, &ratelimitv1.ListRulesRequest{
		Scope: filter.Scope, EnabledOnly: filter.EnabledOnly, Page: filter.Page, PageSize: filter.PageSize,
	}, c.service.ListRules)
	if err != nil {
		return RulePage{}, err
	}
	pagination := reply.GetPagination()
	page := RulePage{
		Rules: make([]Rule, len(reply.GetRules())), TotalCount: pagination.GetTotalCount(),
		Page: pagination.GetPage(), PageSize: pagination.GetPageSize(), HasNext: pagination.GetHasNext(),
	}
	for i, rule := range reply.GetRules() {
		page.Rules[i] = ruleOf(rule)
	}
	return page, nil
}

// maxPageSize is the API's.
const maxPageSize = 100

// AllRules yields the rules of all pages from filter.Page on. An error ends it. Where rules are made or deleted meanwhile, one
// may be missing; none comes twice.
func (c *Client) AllRules(ctx context.Context, filter RuleFilter) iter.Seq2[Rule, error] {
	if filter.PageSize == 0 {
		filter.PageSize = maxPageSize
	}
	filter.Page = max(1, filter.Page)
	return func(yield func(Rule, error) bool) {
		filter := filter
		seen := map[string]bool{}
		for {
			page, err := c.ListRules(ctx, filter)
			if err != nil {
				yield(Rule{}, err)
				return
			}
			for _, rule := range page.Rules {
				if seen[rule.ID] {
					continue
				}
				seen[rule.ID] = true
				if !yield(rule, nil) {
					return
				}
			}
			if !page.HasNext || len(page.Rules) == 0 {
				return
			}
			filter.Page++
		}
	}
}

func ruleOf(r *ratelimitv1.RateLimitRule) Rule {
	rule := Rule{
		ID: r.GetId(), Name: r.GetName(), Domain: r.GetDomain(), Scope: r.GetScope(), IdentifierPattern: r.GetIdentifierPattern(),
		Limit: r.GetLimit(), WindowSeconds: r.GetWindowSecs(), Algorithm: r.GetAlgorithm(), Burst: r.GetBurst(), Enabled: r.GetEnabled(),
		Source: r.GetSource(), Path: r.GetPath(), Action: r.GetAction(), Conflict: r.GetConflict(),
		CreatedAt: timeOf(r.GetCreatedAt()), UpdatedAt: timeOf(r.GetUpdatedAt()), Version: r.GetVersion(),
	}
	for _, l := range r.GetLimits() {
		rule.Limits = append(rule.Limits, RuleLimit{
			Name: l.GetName(), Algorithm: l.GetAlgorithm(), Limit: l.GetLimit(), WindowMilliseconds: l.GetWindowMs(),
			Burst: l.GetBurst(), Kind: l.GetKind(), Calendar: l.GetCalendar(),
		})
	}
	return rule
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
