package k1s0

import (
	"net/http"
	"strings"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// checkBody is the answer to a check. What it leaves out means nothing, because nothing is counted.
type checkBody struct {
	Allowed      bool         `json:"allowed"`
	Remaining    *int64       `json:"remaining,omitempty"`
	ResetAt      *int64       `json:"reset_at,omitempty"`
	Limit        *int64       `json:"limit,omitempty"`
	Reason       string       `json:"reason"`
	RetryAfterMS int64        `json:"retry_after_ms"`
	RuleID       string       `json:"rule_id,omitempty"`
	Degraded     bool         `json:"degraded"`
	Unlimited    bool         `json:"unlimited"`
	Results      []resultBody `json:"results"`
}

type resultBody struct {
	Name         string `json:"name,omitempty"`
	RuleID       string `json:"rule_id,omitempty"`
	Algorithm    string `json:"algorithm"`
	Limit        int64  `json:"limit"`
	WindowMS     int64  `json:"window_ms"`
	Burst        int64  `json:"burst,omitempty"`
	Kind         string `json:"kind"`
	Allowed      bool   `json:"allowed"`
	Remaining    int64  `json:"remaining"`
	ResetAt      int64  `json:"reset_at"`
	RetryAfterMS int64  `json:"retry_after_ms"`
}

func (s *Service) restCheck(c *call) error {
	body, err := readBody(c.Request)
	if err != nil {
		return err
	}
	check := readCheck(body)
	if body.rest(); len(body.faults) > 0 {
		return join(body.faults, s.validateCheck(&check))
	}
	decision, err := s.Check(c.Context(), check)
	if err != nil {
		return err
	}
	for _, header := range s.Headers.Append(make([]respond.Header, 0, 8), &decision.shown, decision.at) {
		c.header().Set(header.Name, header.Value)
	}
	answer := checkBody{
		Allowed: decision.Allowed, Reason: decision.Reason, RetryAfterMS: milliseconds(decision.RetryAfter), RuleID: decision.RuleID,
		Degraded: decision.Degraded, Unlimited: decision.Unlimited, Results: resultBodies(decision.Results),
	}
	if len(decision.Results) > 0 {
		answer.Limit, answer.Remaining, answer.ResetAt = &decision.Limit, &decision.Remaining, &decision.ResetAt
	}
	c.answer(http.StatusOK, answer)
	return nil
}

func readCheck(f *fields) Check {
	check := Check{
		Scope: f.text("scope"), Identifier: f.text("identifier"), Window: f.window("window"),
		RuleID: f.text("rule_id"), Subject: f.text("subject"),
		Domain: f.text("domain"), Cost: 1, RequestID: f.text("request_id"), Peek: f.boolean("peek", false),
		RulesOnly: f.boolean("rules_only", false),
	}
	if cost, present := f.integer("cost"); present {
		check.Cost = cost
	}
	f.list("descriptors", maxDescriptors, func(f *fields) {
		var descriptor ratelimit.Descriptor
		f.list("entries", maxEntries, func(f *fields) {
			descriptor.Entries = append(descriptor.Entries, ratelimit.Entry{Key: f.text("key"), Value: f.text("value")})
		})
		descriptor.Cost, descriptor.HasCost = f.integer("cost")
		f.child("limit", func(f *fields) { descriptor.Limit = readLimit(f) })
		check.Descriptors = append(check.Descriptors, descriptor)
	})
	return check
}

// readLimit reads a limit that a descriptor brings along. It is nil if there is a fault.
func readLimit(f *fields) *ratelimit.Limit {
	sent := sentLimit{name: f.text("name"), algorithm: f.text("algorithm"), kind: f.text("kind"), calendar: f.text("calendar")}
	var present bool
	if sent.count, present = f.integer("limit"); !present && f.object["limit"] == nil {
		f.fault("limit", "is required")
	}
	sent.burst, _ = f.integer("burst")
	sent.windowMS, _ = f.integer("window_ms")
	var found faults
	limit := found.override(strings.TrimSuffix(f.path, "."), sent)
	f.faults = f.faults.with(found)
	if len(f.faults) > 0 {
		return nil
	}
	return limit
}

func resultBodies(results []Result) []resultBody {
	bodies := make([]resultBody, len(results))
	for i := range results {
		result := &results[i]
		bodies[i] = resultBody{
			Name: result.Name, RuleID: result.RuleID, Algorithm: result.Limit.Algorithm.String(),
			Limit: result.Limit.Count, WindowMS: milliseconds(result.Limit.Window), Burst: result.Limit.Burst,
			Kind: result.Limit.Kind.String(), Allowed: result.Allowed, Remaining: result.Remaining,
			ResetAt: result.ResetAt, RetryAfterMS: milliseconds(result.RetryAfter),
		}
	}
	return bodies
}
