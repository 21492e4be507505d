package k1s0

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// one is a check of a scope and an identifier.
func one(scope, identifier string) Check { return Check{Scope: scope, Identifier: identifier, Cost: 1} }

func (s *server) check(check Check) *Decision {
	s.t.Helper()
	decision, err := s.service.Check(s.t.Context(), check)
	if err != nil {
		s.t.Fatalf("%+v: %v", check, err)
	}
	return decision
}

// refused checks the code of an error, and the fields that it names.
func refused(t *testing.T, err error, code Code, fields ...string) {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) {
		t.Errorf("error %v, want %s", err, code)
		return
	}
	var named []string
	for _, field := range failed.Fields {
		named = append(named, field.Name)
	}
	if failed.Code != code || strings.Join(named, " ") != strings.Join(fields, " ") {
		t.Errorf("%s %q with fields %v, want %s with %v", failed.Code, failed.Message, named, code, fields)
	}
}

func TestCheckChargesAndDenies(t *testing.T) {
	s := newServer(t)
	for left := int64(2); left >= 0; left-- {
		if got := s.check(one("user", "from-file")); !got.Allowed || got.Remaining != left || got.Limit != 3 || got.Reason != "" || got.RuleID != fileRuleID {
			t.Errorf("%d left: %+v", left, got)
		}
	}
	got := s.check(one("user", "from-file"))
	if got.Allowed || got.Remaining != 0 || got.Reason != "rate limit exceeded for user:from-file" || got.RetryAfter <= 0 || got.Degraded || got.Unlimited {
		t.Errorf("above the limit: %+v", got)
	}
	const month = 30 * 86400
	if now := time.Now().Unix(); got.ResetAt%month > 1 /* a busy machine tells it late */ || got.ResetAt <= now || got.ResetAt > now+month {
		t.Errorf("reset_at %d is not the end of the window", got.ResetAt)
	}
	for _, equal := range []Check{
		{RuleID: fileRuleID, Cost: 1},
		{RuleID: fileRuleID, Subject: "from-file", Cost: 1},
		{Domain: "k1s0", Descriptors: []ratelimit.Descriptor{{Entries: []ratelimit.Entry{{Key: "user", Value: "from-file"}}}}, Cost: 1},
		{Scope: "user", Identifier: "from-file", Window: 30 * 24 * time.Hour, Cost: 1},
	} {
		if got := s.check(equal); got.Allowed {
			t.Errorf("%+v has another counter: %+v", equal, got)
		}
	}
}

func TestCheckOfWhatNothingCovers(t *testing.T) {
	s := newServer(t)
	if got := s.check(one("user", "stranger")); !got.Allowed || got.Limit != 100 || got.Remaining != 99 || got.RuleID != "" || len(got.Results) != 1 {
		t.Errorf("the default: %+v", got)
	}
	// Also in a domain that no rule is for.
	nowhere := Check{Domain: "nowhere", Descriptors: []ratelimit.Descriptor{{Entries: []ratelimit.Entry{{Key: "a", Value: "b"}}}}, Cost: 40}
	for _, left := range []int64{60, 20} {
		if got := s.check(nowhere); !got.Allowed || got.Remaining != left {
			t.Errorf("an unknown domain: %+v", got)
		}
	}
	if got := s.check(nowhere); got.Allowed || got.Remaining != 20 || got.Reason != "rate limit exceeded for nowhere a=b" {
		t.Errorf("an unknown domain: %+v", got)
	}
}

func TestActions(t *testing.T) {
	s := newServer(t)
	if got := s.check(one("user", "blocked-1")); got.Allowed || got.Unlimited || got.Reason != "denied by a rule for user:blocked-1" || got.RetryAfter != 0 || got.RuleID == "" {
		t.Errorf("deny: %+v", got)
	}
	if got := s.check(one("user", "free-1")); !got.Allowed || !got.Unlimited || got.Reason != "" || len(got.Results) != 0 {
		t.Errorf("allow: %+v", got)
	}
	got := s.send(http.MethodPost, Root+"/check", "", `{"scope":"user","identifier":"free-1"}`)
	if strings.Contains(got.body, "remaining") || strings.Contains(got.body, `"limit"`) || got.header.Get("RateLimit") != "" {
		t.Errorf("what nobody counts is told: %s %v", got.body, got.header)
	}
}

func TestWindowPicksALimit(t *testing.T) {
	s := newServer(t)
	vip := func(window time.Duration, cost int64) *Decision {
		return s.check(Check{Scope: "user", Identifier: "vip-1", Window: window, Cost: cost})
	}
	if got := vip(24*time.Hour, 2); !got.Allowed || got.Limit != 2 || got.Remaining != 0 || len(got.Results) != 1 {
		t.Errorf("the day's limit: %+v", got)
	}
	if got := vip(30*24*time.Hour, 1); !got.Allowed || got.Limit != 5 || got.Remaining != 4 {
		t.Errorf("the month's limit: %+v", got)
	}
	if got := vip(0, 1); got.Allowed || got.Limit != 2 || got.Results[0].Remaining != 4 || len(got.Results) != 2 {
		t.Errorf("both limits, the day's is reached: %+v", got)
	}
	if got := vip(30*24*time.Hour, 0); got.Remaining != 4 {
		t.Errorf("a denied check was charged: %+v", got)
	}
	if got := vip(time.Minute, 1); !got.Allowed || got.Limit != 100 || got.Remaining != 99 {
		t.Errorf("a window that the rule does not have: %+v", got)
	}
	if got := s.check(Check{Scope: "user", Identifier: "other", Window: time.Minute, Cost: 1}); got.Limit != 100 || got.Results[0].Limit.Window != time.Minute {
		t.Errorf("a window without a rule: %+v", got)
	}
	for range 3 {
		if got := s.check(Check{Scope: "user", Identifier: "shadow-1", Window: 24 * time.Hour, Cost: 1}); !got.Allowed || got.RetryAfter != 0 || !got.Results[0].Allowed {
			t.Errorf("a limit of a rule in shadow mode: %+v", got)
		}
	}
	if got := s.check(Check{Scope: "user", Identifier: "blocked-1", Window: time.Minute, Cost: 1}); got.Allowed {
		t.Errorf("a window gets past a rule that denies: %+v", got)
	}
	if got := s.check(Check{Scope: "user", Identifier: "free-1", Window: time.Minute, Cost: 1}); !got.Unlimited {
		t.Errorf("a window limits what a rule lets pass: %+v", got)
	}
}

func TestCheckIsAllOrNothing(t *testing.T) {
	s := newServer(t)
	both := Check{Domain: "edge", Cost: 1, Descriptors: []ratelimit.Descriptor{
		{Entries: []ratelimit.Entry{{Key: "user", Value: "ann"}}}, {Entries: []ratelimit.Entry{{Key: "path", Value: "/"}}},
	}}
	if got := s.check(both); !got.Allowed || len(got.Results) != 2 {
		t.Errorf("%+v", got)
	}
	got := s.check(both)
	if got.Allowed || got.Reason != "rate limit exceeded for edge path=/" || got.Limit != 1 {
		t.Errorf("%+v", got)
	}
	if !got.Results[0].Allowed || got.Results[0].Remaining != 1 || got.Results[1].Allowed {
		t.Errorf("the user was charged, or is blamed: %+v", got.Results)
	}
}

func TestPeekAndCosts(t *testing.T) {
	s := newServer(t)
	check := one("user", "from-file")
	check.Peek, check.Cost = true, 3
	if got := s.check(check); !got.Allowed || got.Remaining != 3 {
		t.Errorf("a look: %+v", got)
	}
	check.Peek = false
	if got := s.check(check); !got.Allowed || got.Remaining != 0 {
		t.Errorf("all at once: %+v", got)
	}
	check.Cost = 0
	if got := s.check(check); got.Allowed || got.Remaining != 0 {
		t.Errorf("cost 0: %+v", got)
	}
	check.Cost = -2
	if got := s.check(check); !got.Allowed || got.Remaining != 2 {
		t.Errorf("given back: %+v", got)
	}
	check.Cost = 4
	if got := s.check(check); got.Allowed || got.Remaining != 2 {
		t.Errorf("more than there ever is: %+v", got)
	}
}

func TestFailureModesAreToldInTheirWords(t *testing.T) {
	open, closed := newServer(t, withCounters(brokenStore{ratelimit.FailOpen})), newServer(t, withCounters(brokenStore{ratelimit.FailClosed}))
	if got := open.check(one("user", "ann")); !got.Allowed || !got.Degraded || got.Reason != "redis unavailable, fail-open" {
		t.Errorf("%+v", got)
	}
	if got := open.send(http.MethodPost, Root+"/check", "", `{"scope":"user","identifier":"ann"}`); got.header.Get("RateLimit") != "" {
		t.Errorf("headers tell what nobody knows: %v", got.header)
	}
	for _, got := range []*Decision{closed.check(one("user", "ann")), open.check(one("user", "closed-1"))} {
		if got.Allowed || !got.Degraded || got.Reason != "redis unavailable, fail-closed" || got.RetryAfter != time.Second {
			t.Errorf("%+v", got)
		}
	}
	// The local answer is a decision like any other.
	local := newServer(t, withCounters(brokenStore{ratelimit.FailLocal}))
	if got := local.check(one("user", "ann")); !got.Allowed || !got.Degraded || got.Reason != "" {
		t.Errorf("%+v", got)
	}
	if got := open.check(one("user", "free-1")); got.Degraded || got.Reason != "" {
		t.Errorf("a rule that counts nothing needs no counters: %+v", got)
	}
}

func TestRequestID(t *testing.T) {
	s := newServer(t)
	check := one("user", "from-file")
	check.RequestID = "order-42"
	answers := make([]*Decision, 50)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() {
			var err error
			if answers[i], err = s.service.Check(t.Context(), check); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	first := fmt.Sprintf("%+v", answers[0])
	for _, answer := range answers {
		if got := fmt.Sprintf("%+v", answer); got != first {
			t.Errorf("answers differ:\n%s\n%s", got, first)
		}
	}
	look := one("user", "from-file")
	look.Peek = true
	if got := s.check(look); got.Remaining != 2 {
		t.Errorf("%d left of 3 after one charge", got.Remaining)
	}
	check.Cost = 2
	_, err := s.service.Check(t.Context(), check)
	refused(t, err, CodeConflict)
}

func TestCheckByRule(t *testing.T) {
	s := newServer(t)
	everyone := s.create("user", "*", 10)
	vip := s.create("user", "vip", 20)
	byRule := func(id, subject string) (*Decision, error) {
		return s.service.Check(t.Context(), Check{RuleID: id, Subject: subject, Cost: 1})
	}
	if got, err := byRule(everyone.ID, "ann"); err != nil || got.Limit != 10 || got.RuleID != everyone.ID {
		t.Errorf("%+v, %v", got, err)
	}
	// The exact rule wins, as it does for a check by scope.
	if got, err := byRule(everyone.ID, "vip"); err != nil || got.Limit != 20 || got.RuleID != vip.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := byRule(vip.ID, ""); err != nil || got.Remaining != 18 {
		t.Errorf("%+v, %v", got, err)
	}
	rule := func(path string) string {
		t.Helper()
		for _, each := range s.set.View().Files {
			if each.Path == path {
				return each.ID
			}
		}
		t.Fatalf("no rule %s", path)
		return ""
	}
	if got, err := byRule(rule("plan=free|user"), "ann"); err != nil || got.Limit != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := byRule(rule("address~cidr:10.0.0.0/8"), "10.1.2.3"); err != nil || got.Limit != 10 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, c := range []struct {
		id, subject string
		code        Code
		fields      []string
	}{
		{everyone.ID, "", CodeValidation, []string{"subject"}},
		{vip.ID, "ann", CodeValidation, []string{"subject"}},
		{rule("user=vip-*"), "ann", CodeValidation, []string{"subject"}},
		{rule("address~cidr:10.0.0.0/8"), "11.1.2.3", CodeValidation, []string{"subject"}},
		{rule("default"), "ann", CodeCheck, nil},
		{missingID, "ann", CodeRuleNotFound, nil},
	} {
		_, err := byRule(c.id, c.subject)
		refused(t, err, c.code, c.fields...)
	}
	s.writeRules("domain: k1s0\ndescriptors: [{key: user, value: vip, limits: [{limit: 1, window: 1h}]}]\n")
	s.set.Load(t.Context())
	_, err := byRule(vip.ID, "")
	refused(t, err, CodeCheck)
}

func TestFaultyChecks(t *testing.T) {
	s := newServer(t)
	long := strings.Repeat("x", maxIdentifier+1)
	entries := []ratelimit.Entry{{Key: "user", Value: "ann"}}
	for name, c := range map[string]struct {
		check  Check
		fields string
	}{
		"nothing":             {Check{}, "scope identifier"},
		"no identifier":       {Check{Scope: "user"}, "identifier"},
		"unknown scope":       {Check{Scope: "usr", Identifier: "ann"}, "scope"},
		"long identifier":     {Check{Scope: "user", Identifier: long}, "identifier"},
		"two forms":           {Check{Scope: "user", RuleID: "1"}, "scope"},
		"two other forms":     {Check{RuleID: "1", Domain: "edge"}, "rule_id"},
		"subject alone":       {Check{Subject: "ann"}, "rule_id"},
		"domain alone":        {Check{Domain: "edge"}, "descriptors"},
		"descriptors alone":   {Check{Descriptors: []ratelimit.Descriptor{{Entries: entries}}}, "domain"},
		"no entries":          {Check{Domain: "edge", Descriptors: []ratelimit.Descriptor{{Entries: entries}, {}}}, "descriptors[1].entries"},
		"no key":              {Check{Domain: "edge", Descriptors: []ratelimit.Descriptor{{Entries: []ratelimit.Entry{{}}}}}, "descriptors[0].entries[0].key"},
		"many entries":        {Check{Domain: "edge", Descriptors: []ratelimit.Descriptor{{Entries: make([]ratelimit.Entry, maxEntries+1)}}}, "descriptors[0].entries"},
		"many descriptors":    {Check{Domain: "edge", Descriptors: make([]ratelimit.Descriptor, maxDescriptors+1)}, "descriptors"},
		"descriptor's cost":   {Check{Domain: "edge", Descriptors: []ratelimit.Descriptor{{Entries: entries, Cost: ratelimit.MaxCost + 1, HasCost: true}}}, "descriptors[0].cost"},
		"window, descriptors": {Check{Domain: "edge", Descriptors: []ratelimit.Descriptor{{Entries: entries}}, Window: time.Hour}, "window"},
		"short window":        {Check{Scope: "user", Identifier: "ann", Window: time.Microsecond}, "window"},
		"negative window":     {Check{Scope: "user", Identifier: "ann", Window: -time.Hour}, "window"},
		"cost":                {Check{Scope: "user", Identifier: "ann", Cost: -ratelimit.MaxCost - 1}, "cost"},
		"long request id":     {Check{Scope: "user", Identifier: "ann", RequestID: long}, "request_id"},
		"not UTF-8":           {Check{Scope: "user", Identifier: "\xff"}, "identifier"},
		"everything":          {Check{Scope: "usr", Window: -1, Cost: 1 << 50, RequestID: long}, "scope identifier window cost request_id"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.service.Check(t.Context(), c.check)
			refused(t, err, CodeValidation, strings.Fields(c.fields)...)
		})
	}
	// What a message repeats of a request is bounded.
	_, err := s.service.Check(t.Context(), Check{Scope: "user", Identifier: "vip-1", RuleID: long})
	if err == nil || len(err.Error()) > 500 {
		t.Errorf("%v", err)
	}
}

// While there are no valid rule files any scope may be meant.
func TestScopesWhileTheRulesAreFaulty(t *testing.T) {
	s := newServerOf(t, "domain: [")
	if _, err := s.service.Check(t.Context(), one("plan", "free")); err != nil {
		t.Error(err)
	}
	if got := s.check(one("user", "from-file")); got.Limit != 100 {
		t.Errorf("%+v", got)
	}
}

func TestResponseHeaders(t *testing.T) {
	s := newServer(t)
	var got reply
	for range 4 {
		got = s.send(http.MethodPost, Root+"/check", "", `{"scope":"user","identifier":"from-file"}`)
	}
	var body struct {
		Allowed      bool  `json:"allowed"`
		ResetAt      int64 `json:"reset_at"`
		RetryAfterMS int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal([]byte(got.body), &body); err != nil || got.status != http.StatusOK || body.Allowed {
		t.Fatalf("%d %s %v", got.status, got.body, err)
	}
	for name, want := range map[string]string{
		"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": fmt.Sprint(body.ResetAt),
		"RateLimit-Policy": `"fixed";q=3;w=2592000`, "Retry-After": fmt.Sprint((body.RetryAfterMS + 999) / 1000),
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.header.Get(name), want)
		}
	}
}

// Identifiers that look alike have counters of their own, and answers are text whatever they are.
func TestHostileIdentifiers(t *testing.T) {
	s := newServer(t)
	client := s.client()
	for i, identifier := range []string{"a:b", "a%3Ab", "a|b", "*", "a\x00b", "a\nb", strings.Repeat("é", 200), strings.Repeat("é", 201), "{a}", "\u2028"} {
		check := one("user", identifier)
		check.Cost = 101 // denied, so that the reason names it
		if got := s.check(check); got.Allowed || got.Remaining != 100 {
			t.Errorf("%d: %+v", i, got)
		}
		if _, err := client.CheckRateLimit(t.Context(), checkMessage(check)); err != nil {
			t.Errorf("%q: %v", identifier, err)
		}
	}
}
