package k1s0

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/ratelimit"
	pb "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

func checkMessage(check Check) *pb.CheckRateLimitRequest {
	message := &pb.CheckRateLimitRequest{
		RuleId: check.RuleID, Subject: check.Subject, Scope: check.Scope, Identifier: check.Identifier, Domain: check.Domain,
		WindowSecs: int64(check.Window / time.Second), Cost: &check.Cost, RequestId: check.RequestID, Peek: check.Peek,
	}
	for _, descriptor := range check.Descriptors {
		sent := &pb.Descriptor{}
		if descriptor.HasCost {
			sent.Cost = &descriptor.Cost
		}
		for _, entry := range descriptor.Entries {
			sent.Entries = append(sent.Entries, &pb.Entry{Key: entry.Key, Value: entry.Value})
		}
		message.Descriptors = append(message.Descriptors, sent)
	}
	return message
}

// as returns a context that carries a token, and further metadata.
func as(t testing.TB, token string, further ...string) context.Context {
	t.Helper()
	if token != "" {
		further = append(further, "authorization", "Bearer "+token)
	}
	return metadata.AppendToOutgoingContext(t.Context(), further...)
}

// failedWith checks a status and its details, and returns the violations.
func failedWith(t *testing.T, err error, want Code) []*errdetails.BadRequest_FieldViolation {
	t.Helper()
	got := status.Convert(err)
	if got.Code() != want.GRPC() {
		t.Errorf("%v, want %v", err, want.GRPC())
	}
	var violations []*errdetails.BadRequest_FieldViolation
	var reason, request string
	for _, detail := range got.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			reason = detail.GetReason()
			if detail.GetDomain() != "weir" {
				t.Errorf("domain %q", detail.GetDomain())
			}
		case *errdetails.RequestInfo:
			request = detail.GetRequestId()
		case *errdetails.BadRequest:
			violations = detail.GetFieldViolations()
		}
	}
	if reason != string(want) || request == "" {
		t.Errorf("%v: reason %q of request %q, want %s", err, reason, request, want)
	}
	return violations
}

func TestRules(t *testing.T) {
	s := newServer(t)
	client := s.client()
	var header metadata.MD
	created, err := client.CreateRule(as(t, "operator", "x-request-id", "abc-1"), &pb.CreateRuleRequest{
		Key: "endpoint:/api/v1/orders", Limit: 5, WindowSecs: 60, Burst: 8,
	}, grpc.Header(&header))
	if err != nil {
		t.Fatal(err)
	}
	rule := created.GetRule()
	want := &pb.RateLimitRule{
		Id: rule.GetId(), Name: "endpoint-/api/v1/orders", Key: "endpoint:/api/v1/orders", Limit: 5, WindowSecs: 60,
		Algorithm: "token_bucket", Enabled: true, CreatedAt: rule.GetCreatedAt(), UpdatedAt: rule.GetCreatedAt(),
		Scope: "endpoint", IdentifierPattern: "/api/v1/orders", Source: "api", Burst: 8, Version: 1, Domain: "k1s0",
		Path: "endpoint=/api/v1/orders", Action: "limit",
		Limits: []*pb.RuleLimit{{Algorithm: "token_bucket", Limit: 5, WindowMs: 60_000, Burst: 8, Kind: "protection"}},
	}
	if !proto.Equal(rule, want) || time.Since(rule.GetCreatedAt().AsTime()) > time.Minute {
		t.Errorf("got  %v\nwant %v", rule, want)
	}
	if got := header.Get("x-request-id"); len(got) != 1 || got[0] != "abc-1" {
		t.Errorf("request id %v", got)
	}

	got, err := client.GetRule(as(t, "auditor"), &pb.GetRuleRequest{RuleId: rule.GetId()})
	if err != nil || !proto.Equal(got.GetRule(), rule) {
		t.Errorf("%v, %v", got, err)
	}
	updated, err := client.UpdateRule(as(t, "operator"), &pb.UpdateRuleRequest{
		RuleId: rule.GetId(), Name: "orders", Key: rule.GetKey(), Limit: 7, WindowSecs: 1, Algorithm: "fixed_window", Enabled: new(false), Version: 1,
	})
	if err != nil || updated.GetRule().GetVersion() != 2 || updated.GetRule().GetEnabled() || updated.GetRule().GetName() != "orders" {
		t.Errorf("%v, %v", updated, err)
	}
	_, err = client.UpdateRule(as(t, "operator"), &pb.UpdateRuleRequest{RuleId: rule.GetId(), Key: rule.GetKey(), Limit: 7, WindowSecs: 1, Version: 1})
	failedWith(t, err, CodeStale)
	_, err = client.DeleteRule(as(t, "admin"), &pb.DeleteRuleRequest{RuleId: rule.GetId(), Version: 1})
	failedWith(t, err, CodeStale)

	listed, err := client.ListRules(as(t, "auditor"), &pb.ListRulesRequest{Scope: "endpoint"})
	if err != nil || len(listed.GetRules()) != 1 || !proto.Equal(listed.GetPagination(), &pb.Pagination{TotalCount: 1, Page: 1, PageSize: 20}) {
		t.Errorf("%v, %v", listed, err)
	}
	listed, err = client.ListRules(as(t, "auditor"), &pb.ListRulesRequest{Scope: "endpoint", EnabledOnly: true})
	if err != nil || len(listed.GetRules()) != 0 {
		t.Errorf("%v, %v", listed, err)
	}
	if _, err := client.DeleteRule(as(t, "admin"), &pb.DeleteRuleRequest{RuleId: rule.GetId(), Version: 2}); err != nil {
		t.Error(err)
	}
	_, err = client.GetRule(as(t, "auditor"), &pb.GetRuleRequest{RuleId: rule.GetId()})
	failedWith(t, err, CodeRuleNotFound)
	_, err = client.DeleteRule(as(t, "admin"), &pb.DeleteRuleRequest{RuleId: fileRuleID})
	failedWith(t, err, CodeReadOnly)
}

func TestCheckOverGRPC(t *testing.T) {
	s := newServer(t)
	client := s.client()
	s.create("user", "*", 2)
	check := &pb.CheckRateLimitRequest{Scope: "user", Identifier: "ann"}
	for _, allowed := range []bool{true, true, false} {
		got, err := client.CheckRateLimit(t.Context(), check)
		if err != nil || got.GetAllowed() != allowed || got.GetLimit() != 2 || got.GetRuleId() == "" || len(got.GetResults()) != 1 ||
			got.GetResetAt() <= time.Now().Unix() || (got.GetRetryAfterMs() > 0) == allowed {
			t.Errorf("want allowed %v: %v, %v", allowed, got, err)
		}
	}
	got, err := client.CheckRateLimit(t.Context(), &pb.CheckRateLimitRequest{
		Domain: "k1s0", Descriptors: []*pb.Descriptor{{Entries: []*pb.Entry{{Key: "user", Value: "ann"}}, Cost: proto.Int64(-1)}},
	})
	if err != nil || got.GetRemaining() != 1 {
		t.Errorf("%v, %v", got, err)
	}
	_, err = client.CheckRateLimit(t.Context(), &pb.CheckRateLimitRequest{Scope: "user", WindowSecs: 1 << 62})
	violations := failedWith(t, err, CodeValidation)
	if len(violations) != 2 || violations[0].GetField() != "identifier" || violations[1].GetField() != "window_secs" ||
		!strings.HasPrefix(violations[1].GetDescription(), "window_secs ") {
		t.Errorf("%v", violations)
	}
	_, err = client.CheckRateLimit(t.Context(), &pb.CheckRateLimitRequest{RuleId: missingID, Subject: "ann"})
	failedWith(t, err, CodeRuleNotFound)
}

func TestFaultyRulesOverGRPC(t *testing.T) {
	client := newServer(t).client()
	_, err := client.CreateRule(as(t, "operator"), &pb.CreateRuleRequest{Key: "usr", Algorithm: "dice"})
	var said []string
	for _, violation := range failedWith(t, err, CodeValidation) {
		said = append(said, violation.GetField()+": "+violation.GetDescription())
	}
	want := []string{
		"key: key's scope must be one of: service, user, endpoint",
		"key: key's identifier pattern is required",
		"limit: limit must be greater than 0",
		"window_secs: window_secs must be greater than 0",
		"algorithm: algorithm must be one of: fixed_window, sliding_window, sliding_log, token_bucket, leaky_bucket",
	}
	if strings.Join(said, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
}

// Every call needs the role that REST asks for, and a call that nobody has listed needs the highest.
func TestRolesOfCalls(t *testing.T) {
	client := newServer(t).client()
	calls := map[string]func(context.Context) error{
		"CheckRateLimit": func(ctx context.Context) error {
			_, err := client.CheckRateLimit(ctx, &pb.CheckRateLimitRequest{})
			return err
		},
		"CreateRule": func(ctx context.Context) error { _, err := client.CreateRule(ctx, &pb.CreateRuleRequest{}); return err },
		"GetRule":    func(ctx context.Context) error { _, err := client.GetRule(ctx, &pb.GetRuleRequest{}); return err },
		"GetUsage":   func(ctx context.Context) error { _, err := client.GetUsage(ctx, &pb.GetUsageRequest{}); return err },
		"ResetLimit": func(ctx context.Context) error { _, err := client.ResetLimit(ctx, &pb.ResetLimitRequest{}); return err },
		"ListRules": func(ctx context.Context) error {
			_, err := client.ListRules(ctx, &pb.ListRulesRequest{Page: -1})
			return err
		},
		"UpdateRule": func(ctx context.Context) error { _, err := client.UpdateRule(ctx, &pb.UpdateRuleRequest{}); return err },
		"DeleteRule": func(ctx context.Context) error { _, err := client.DeleteRule(ctx, &pb.DeleteRuleRequest{}); return err },
	}
	for _, method := range pb.RateLimitService_ServiceDesc.Methods {
		name := method.MethodName
		needed, listed := roles[name]
		if !listed {
			t.Errorf("%s has no role", name)
		}
		if calls[name] == nil {
			t.Fatalf("%s is not tested", name)
		}
		for token, role := range rolesOf {
			want := codes.InvalidArgument // nothing was sent
			if !role.Allows(needed) {
				want = codes.PermissionDenied
			}
			if got := status.Code(calls[name](as(t, token))); got != want {
				t.Errorf("%s as %s: %v, want %v", name, token, got, want)
			}
		}
		if needed == auth.NoRole {
			continue
		}
		for _, token := range []string{"", "stranger"} {
			failedWith(t, calls[name](as(t, token)), CodeUnauthenticated)
		}
		failedWith(t, calls[name](as(t, "issuer-away")), CodeUnavailable)
	}
}

func TestUsageOverGRPC(t *testing.T) {
	s := newServer(t)
	client := s.client()
	usage := func(id, subject string) *pb.GetUsageResponse {
		t.Helper()
		got, err := client.GetUsage(as(t, "auditor"), &pb.GetUsageRequest{RuleId: id, Subject: subject})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := usage(fileRuleID, "")
	want := &pb.GetUsageResponse{RuleId: fileRuleID, RuleName: "fixed", Limit: 3, WindowSecs: 2592000, Algorithm: "fixed_window", Enabled: true}
	if !proto.Equal(got, want) {
		t.Errorf("without state: %v", got)
	}
	s.check(one("user", "from-file"))
	got = usage(fileRuleID, "")
	if got.Used == nil || got.GetUsed() != 1 || got.GetRemaining() != 2 || got.GetResetAt() <= time.Now().Unix() || len(got.GetResults()) != 1 {
		t.Errorf("%v", got)
	}
	again := usage(fileRuleID, "from-file")
	for _, each := range []*pb.GetUsageResponse{got, again} { // a busy machine may tell a reset a second late
		each.ResetAt, each.Results[0].ResetAt = nil, 0
	}
	if !proto.Equal(again, got) {
		t.Errorf("asking changed the answer: %v", again)
	}
}

// Usage is right for every algorithm, and asking for it charges nothing.
func TestUsageOfEveryAlgorithm(t *testing.T) {
	s := newServer(t)
	for _, algorithm := range ratelimit.Algorithms() {
		in := RuleInput{Scope: "service", Pattern: algorithm.String() + "-*", Limit: 10, WindowSeconds: 86400, Algorithm: algorithm.String(), Enabled: true}
		if algorithm == ratelimit.LeakyBucket {
			in.Burst = 10
		}
		rule, err := s.service.Create(t.Context(), Caller{Subject: "tester"}, in)
		if err != nil {
			t.Fatal(err)
		}
		usage := func(subject string) *Usage {
			t.Helper()
			got, err := s.service.Usage(t.Context(), rule.ID, subject)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		subject := algorithm.String() + "-1"
		if got := usage(subject); got.Counted {
			t.Errorf("%s: never used, but %+v", algorithm, got)
		}
		check := one("service", subject)
		check.Cost = 4
		s.check(check)
		for range 3 {
			if got := usage(subject); !got.Counted || got.Used != 4 || got.Remaining != 6 || got.ResetAt <= time.Now().Unix() {
				t.Errorf("%s: %+v", algorithm, got)
			}
		}
		if got := usage(""); got.Counted {
			t.Errorf("%s: the rule itself has state: %+v", algorithm, got)
		}
		if got := usage(algorithm.String() + "-2"); got.Counted {
			t.Errorf("%s: another subject has state: %+v", algorithm, got)
		}
		_, err = s.service.Usage(t.Context(), rule.ID, "stranger")
		refused(t, err, CodeValidation, "subject")

		if _, err := s.service.Reset(t.Context(), Caller{Subject: "tester"}, "service", subject, 0); err != nil {
			t.Error(err)
		}
		if got := usage(subject); got.Counted {
			t.Errorf("%s: after a reset under a wildcard rule: %+v", algorithm, got)
		}
	}
}
