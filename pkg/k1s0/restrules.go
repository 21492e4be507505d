package k1s0

import (
	"net/http"
	"time"
)

// ruleBody is a rule as JSON.
type ruleBody struct {
	ID                string      `json:"id"`
	Name              string      `json:"name"`
	Scope             string      `json:"scope"`
	IdentifierPattern string      `json:"identifier_pattern"`
	Limit             int64       `json:"limit"`
	WindowSeconds     int64       `json:"window_seconds"`
	Algorithm         string      `json:"algorithm"`
	Burst             int64       `json:"burst,omitempty"`
	Enabled           bool        `json:"enabled"`
	CreatedAt         *string     `json:"created_at,omitempty"`
	UpdatedAt         *string     `json:"updated_at,omitempty"`
	Version           int64       `json:"version,omitempty"`
	Source            string      `json:"source"`
	Domain            string      `json:"domain"`
	Path              string      `json:"path"`
	Action            string      `json:"action"`
	Limits            []limitBody `json:"limits"`
	Conflict          string      `json:"conflict,omitempty"`
}

type limitBody struct {
	Name      string `json:"name,omitempty"`
	Algorithm string `json:"algorithm"`
	Limit     int64  `json:"limit"`
	WindowMS  int64  `json:"window_ms"`
	Burst     int64  `json:"burst,omitempty"`
	Kind      string `json:"kind"`
	Calendar  string `json:"calendar,omitempty"`
}

type listBody struct {
	Rules      []ruleBody     `json:"rules"`
	Pagination paginationBody `json:"pagination"`
}

type paginationBody struct {
	TotalCount int64 `json:"total_count"`
	Page       int64 `json:"page"`
	PageSize   int64 `json:"page_size"`
	HasNext    bool  `json:"has_next"`
}

func (s *Service) restList(c *call) error {
	q := readQuery(c.Request)
	filter := Filter{
		Scope: q.text("scope"), EnabledOnly: q.boolean("enabled_only"),
		Page: q.integer("page", 1), PageSize: q.integer("page_size", DefaultPageSize),
	}
	if err := q.with(filter.validate()); err != nil {
		return err
	}
	page, err := s.List(c.Context(), filter)
	if err != nil {
		return err
	}
	body := listBody{make([]ruleBody, len(page.Rules)), paginationBody{page.Total, page.Number, page.Size, page.HasNext}}
	for i := range page.Rules {
		body.Rules[i] = bodyOf(&page.Rules[i])
	}
	c.answer(http.StatusOK, body)
	return nil
}

func (s *Service) restCreate(c *call) error {
	in, err := readRule(c)
	if err != nil {
		return err
	}
	rule, err := s.Create(c.Context(), c.caller, in)
	if err != nil {
		return err
	}
	c.header().Set("Location", Root+"/rules/"+rule.ID)
	c.rule(http.StatusCreated, rule)
	return nil
}

func (s *Service) restGet(c *call) error {
	if err := readQuery(c.Request).with(nil); err != nil {
		return err
	}
	rule, err := s.Get(c.Context(), c.PathValue("id"))
	if err != nil {
		return err
	}
	c.rule(http.StatusOK, rule)
	return nil
}

func (s *Service) restUpdate(c *call) error {
	in, err := readRule(c)
	if err != nil {
		return err
	}
	version, err := c.expected()
	if err != nil {
		return err
	}
	rule, err := s.Update(c.Context(), c.caller, c.PathValue("id"), in, version)
	if err != nil {
		return err
	}
	c.rule(http.StatusOK, rule)
	return nil
}

func (s *Service) restDelete(c *call) error {
	if err := readQuery(c.Request).with(nil); err != nil {
		return err
	}
	version, err := c.expected()
	if err != nil {
		return err
	}
	if err := s.Delete(c.Context(), c.caller, c.PathValue("id"), version); err != nil {
		return err
	}
	c.writer.WriteHeader(http.StatusNoContent)
	return nil
}

// rule answers with one rule, and its version as an entity tag.
func (c *call) rule(status int, rule *Rule) {
	if rule.Version > 0 {
		c.header().Set("ETag", tagOf(rule.Version))
	}
	c.answer(status, bodyOf(rule))
}

func readRule(c *call) (RuleInput, error) {
	if err := readQuery(c.Request).with(nil); err != nil {
		return RuleInput{}, err
	}
	body, err := readBody(c.Request)
	if err != nil {
		return RuleInput{}, err
	}
	in := RuleInput{
		Name: body.text("name"), Scope: body.text("scope"), Pattern: body.text("identifier_pattern"),
		Algorithm: body.text("algorithm"), Enabled: body.boolean("enabled", true),
	}
	in.Limit, _ = body.integer("limit")
	in.WindowSeconds, _ = body.integer("window_seconds")
	in.Burst, _ = body.integer("burst")
	if body.rest(); len(body.faults) > 0 {
		return in, join(body.faults, validateRule(&in))
	}
	return in, nil
}

// timeLayout is RFC 3339 in UTC with milliseconds.
const timeLayout = "2006-01-02T15:04:05.000Z"

func shownTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.UTC().Format(timeLayout)
	return &text
}

func bodyOf(rule *Rule) ruleBody {
	first := rule.limit()
	body := ruleBody{
		ID: rule.ID, Name: rule.Name, Scope: rule.Scope, IdentifierPattern: rule.Pattern,
		Limit: first.Count, WindowSeconds: seconds(first.Window), Burst: first.Burst, Enabled: rule.Enabled,
		CreatedAt: shownTime(rule.CreatedAt), UpdatedAt: shownTime(rule.UpdatedAt), Version: rule.Version,
		Source: rule.Source, Domain: rule.Domain, Path: rule.Path, Action: actionName(rule.Action),
		Limits: make([]limitBody, len(rule.Limits)), Conflict: rule.Conflict,
	}
	if len(rule.Limits) > 0 {
		body.Algorithm = first.Algorithm.String()
	}
	for i := range rule.Limits {
		limit := &rule.Limits[i]
		body.Limits[i] = limitBody{
			Name: limit.Name, Algorithm: limit.Algorithm.String(), Limit: limit.Count, WindowMS: milliseconds(limit.Window),
			Burst: limit.Burst, Kind: limit.Kind.String(), Calendar: calendarName(limit),
		}
	}
	return body
}
