package k1s0

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/pkg/ratelimit"
	pb "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

// brings is a request of a gateway whose limits stand in its own configuration.
func brings(domain, key, value string, limits ...*pb.RuleLimit) *pb.CheckRateLimitRequest {
	request := &pb.CheckRateLimitRequest{Domain: domain}
	for _, limit := range limits {
		request.Descriptors = append(request.Descriptors, &pb.Descriptor{Entries: []*pb.Entry{{Key: key, Value: value}}, Limit: limit})
	}
	return request
}

func TestDescriptorsBringLimits(t *testing.T) {
	client := newServer(t).client()
	minute := &pb.RuleLimit{Name: "minute", Algorithm: "fixed_window", Limit: 3, WindowMs: 60_000}
	month := &pb.RuleLimit{Name: "month", Algorithm: "fixed_window", Limit: 2, Calendar: "month", Kind: "quota"}
	for i, allowed := range []bool{true, true, false} {
		got, err := client.CheckRateLimit(t.Context(), brings("kong", "ip", "192.0.2.1", minute, month))
		if err != nil || got.GetAllowed() != allowed || got.GetLimit() != 2 || got.GetRuleId() != "" || len(got.GetResults()) != 2 {
			t.Fatalf("request %d: %v, %v", i, got, err)
		}
		if first, second := got.GetResults()[0], got.GetResults()[1]; first.GetName() != "minute" || first.GetLimit() != 3 ||
			first.GetRemaining() < 1 || second.GetName() != "month" || second.GetKind() != "quota" || second.GetAllowed() != allowed {
			t.Errorf("request %d: %v", i, got)
		}
	}
	// Another limit has another counter, and a rule's own are left alone.
	got, err := client.CheckRateLimit(t.Context(), brings("kong", "ip", "192.0.2.1", &pb.RuleLimit{Limit: 5, WindowMs: 3_600_000}))
	if err != nil || got.GetRemaining() != 4 || got.GetResults()[0].GetAlgorithm() != "token_bucket" {
		t.Errorf("%v, %v", got, err)
	}
	got, err = client.CheckRateLimit(t.Context(), brings("k1s0", "user", "from-file", minute))
	if err != nil || got.GetRuleId() != fileRuleID || got.GetLimit() != 3 || len(got.GetResults()) != 1 || got.GetResults()[0].GetWindowMs() != 60_000 {
		t.Errorf("in place of a rule's: %v, %v", got, err)
	}
	got, err = client.CheckRateLimit(t.Context(), &pb.CheckRateLimitRequest{Scope: "user", Identifier: "from-file"})
	if err != nil || got.GetRemaining() != 2 {
		t.Errorf("the rule's own counter: %v, %v", got, err)
	}
	// What a rule refuses no limit lets pass, and what none counts stays so.
	got, err = client.CheckRateLimit(t.Context(), brings("k1s0", "user", "blocked-1", minute))
	if err != nil || got.GetAllowed() {
		t.Errorf("a rule that denies: %v, %v", got, err)
	}
	got, err = client.CheckRateLimit(t.Context(), brings("kong", "ip", "192.0.2.2", &pb.RuleLimit{Algorithm: "fixed_window", WindowMs: 60_000}))
	if err != nil || got.GetAllowed() {
		t.Errorf("a limit of 0: %v, %v", got, err)
	}
}

// A request ID stands for the counters, which the windows that were brought choose.
func TestRequestIDCoversTheWindowsBrought(t *testing.T) {
	client := newServer(t).client()
	request := brings("kong", "ip", "192.0.2.1", &pb.RuleLimit{Algorithm: "fixed_window", Limit: 3, WindowMs: 3_600_000})
	request.RequestId = "one"
	first, err := client.CheckRateLimit(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := client.CheckRateLimit(t.Context(), request); err != nil || !proto.Equal(again, first) {
		t.Errorf("%v, %v; first %v", again, err, first)
	}
	request.Descriptors[0].Limit.WindowMs = 60_000
	_, err = client.CheckRateLimit(t.Context(), request)
	failedWith(t, err, CodeConflict)
}

func TestFaultyLimitsOfDescriptors(t *testing.T) {
	s := newServer(t)
	client := s.client()
	for name, c := range map[string]struct {
		limit *pb.RuleLimit
		want  string
	}{
		"nothing":           {&pb.RuleLimit{}, "window_ms"},
		"unknown words":     {&pb.RuleLimit{Algorithm: "dice", Kind: "gift", Calendar: "week", Limit: -1, Burst: -1}, "algorithm kind limit burst calendar"},
		"too much":          {&pb.RuleLimit{Limit: ratelimit.MaxCount + 1, Burst: ratelimit.MaxCount + 1, WindowMs: 1 << 62, Name: strings.Repeat("n", 257)}, "name limit burst window_ms"},
		"burst of a window": {&pb.RuleLimit{Algorithm: "fixed_window", Limit: 1, Burst: 2, WindowMs: 1}, "burst"},
		"calendar's bucket": {&pb.RuleLimit{Limit: 1, Calendar: "year"}, "algorithm"},
	} {
		t.Run(name, func(t *testing.T) {
			request := brings("kong", "ip", "a", nil, c.limit)
			_, err := client.CheckRateLimit(t.Context(), request)
			var named []string
			for _, violation := range failedWith(t, err, CodeValidation) {
				named = append(named, strings.TrimPrefix(violation.GetField(), "descriptors[1].limit."))
			}
			if got := strings.Join(named, " "); got != c.want {
				t.Errorf("named %q, want %q", got, c.want)
			}
		})
	}
	got := s.send(http.MethodPost, Root+"/check", "", `{"scope":"user","domain":"d","descriptors":[{"entries":[{"key":"a"}],"limit":{"limit":"many","colour":"blue","kind":"gift"}}]}`)
	_, _, details := errorOf(t, got)
	for _, field := range []string{"scope", "descriptors[0].limit.limit", "descriptors[0].limit.colour", "descriptors[0].limit.kind", "descriptors[0].limit.window_ms"} {
		if details[field] == "" {
			t.Errorf("%s is not told: %v", field, details)
		}
	}
	// Callers in this process are held to the same.
	_, err := s.service.Check(t.Context(), Check{Domain: "d", Cost: 1, Descriptors: []ratelimit.Descriptor{
		{Entries: []ratelimit.Entry{{Key: "a"}}, Limit: &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: 1, Burst: 1, Window: time.Minute}},
	}})
	refused(t, err, CodeValidation, "descriptors[0].limit.burst")
}

// With rules_only descriptors get what Envoy's do: nothing is counted where no rule is for it.
func TestRulesOnly(t *testing.T) {
	client := newServer(t).client()
	for _, c := range []struct {
		domain, key, value string
		limit              int64 // 0: not limited
	}{
		{"nowhere", "a", "b", 0},
		{"k1s0", "stranger", "x", 0},
		{"k1s0", "user", "from-file", 3},
		{"edge", "user", "ann", 2},
	} {
		request := brings(c.domain, c.key, c.value, nil)
		request.RulesOnly = true
		got, err := client.CheckRateLimit(t.Context(), request)
		if err != nil || !got.GetAllowed() || got.GetUnlimited() != (c.limit == 0) || got.GetLimit() != c.limit {
			t.Errorf("%s %s=%s: %v, %v", c.domain, c.key, c.value, got, err)
		}
		request.RulesOnly = false
		if got, err := client.CheckRateLimit(t.Context(), request); err != nil || got.GetUnlimited() {
			t.Errorf("%s %s=%s, with the default: %v, %v", c.domain, c.key, c.value, got, err)
		}
	}
	request := brings("kong", "ip", "a", &pb.RuleLimit{Limit: 1, WindowMs: 1000})
	request.RulesOnly = true
	_, err := client.CheckRateLimit(t.Context(), request)
	failedWith(t, err, CodeValidation)
	_, err = client.CheckRateLimit(t.Context(), &pb.CheckRateLimitRequest{Scope: "user", Identifier: "a", RulesOnly: true})
	failedWith(t, err, CodeValidation)
}

// What a repetition is told in headers is what the first was told, though time has passed.
func TestRepetitionsAreToldTheSameHeaders(t *testing.T) {
	s := newServer(t)
	send := func() http.Header {
		return s.send(http.MethodPost, Root+"/check", "", `{"scope":"user","identifier":"ann","request_id":"one","window":"7s"}`).header
	}
	first := send()
	now := s.service.Now
	s.service.Now = func() time.Time { return now().Add(time.Minute) }
	again := send()
	for _, name := range []string{"X-RateLimit-Reset", "X-RateLimit-Remaining", "RateLimit"} {
		if first.Get(name) == "" || first.Get(name) != again.Get(name) {
			t.Errorf("%s: %q, first %q", name, again.Get(name), first.Get(name))
		}
	}
}
