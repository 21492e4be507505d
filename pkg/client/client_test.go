package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/pkg/client"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
	ratelimitv1 "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

// testTimeout is long enough for the slowest machine.
const testTimeout = 30 * time.Second

func TestErrors(t *testing.T) {
	fields := &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: "limit", Description: "must be at least 1"}, {Field: "key", Description: "key is required"},
	}}
	all := []error{
		client.ErrInvalid, client.ErrUncheckable, client.ErrUnauthenticated, client.ErrForbidden, client.ErrNotFound, client.ErrExists,
		client.ErrReadOnly, client.ErrStale, client.ErrConflict, client.ErrUnavailable, client.ErrInternal,
	}
	for name, test := range map[string]struct {
		sent error
		want error
	}{
		"invalid":         {failure(codes.InvalidArgument, "SYS_RATELIMIT_VALIDATION_ERROR", "not valid", fields), client.ErrInvalid},
		"uncheckable":     {failure(codes.FailedPrecondition, "SYS_RATELIMIT_ERROR", "no"), client.ErrUncheckable},
		"unauthenticated": {failure(codes.Unauthenticated, "SYS_RATELIMIT_UNAUTHENTICATED", "who"), client.ErrUnauthenticated},
		"forbidden":       {failure(codes.PermissionDenied, "SYS_RATELIMIT_FORBIDDEN", "no"), client.ErrForbidden},
		"not found":       {failure(codes.NotFound, "SYS_RATELIMIT_RULE_NOT_FOUND", "none"), client.ErrNotFound},
		"exists":          {failure(codes.AlreadyExists, "SYS_RATELIMIT_RULE_EXISTS", "there"), client.ErrExists},
		"read-only":       {failure(codes.FailedPrecondition, "SYS_RATELIMIT_RULE_READ_ONLY", "file"), client.ErrReadOnly},
		"conflict":        {failure(codes.AlreadyExists, "SYS_RATELIMIT_CONFLICT", "id"), client.ErrConflict},
		"internal":        {failure(codes.Internal, "SYS_RATELIMIT_INTERNAL_ERROR", "oh"), client.ErrInternal},
		"database down":   {failure(codes.Unavailable, "SYS_RATELIMIT_UNAVAILABLE", "down"), client.ErrUnavailable},
		"stale":           {failure(codes.Aborted, "SYS_RATELIMIT_RULE_STALE", "old"), client.ErrStale},
		"a proxy's":       {status.Error(codes.NotFound, "no route"), client.ErrNotFound},
		"no status":       {errors.New("plain"), client.ErrInternal},
		"nothing known":   {status.Error(codes.OutOfRange, "?"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, &service{fail: func(int) error { return test.sent }}, client.Options{Retries: -1})
			_, err := c.CreateRule(t.Context(), client.RuleSpec{Scope: "user", IdentifierPattern: "*"})
			want := []error{test.want}
			for _, sentinel := range all {
				if got := errors.Is(err, sentinel); got != slices.Contains(want, sentinel) {
					t.Errorf("errors.Is(%v, %v) = %t", err, sentinel, got)
				}
			}
			var detailed *client.Error
			if !errors.As(err, &detailed) {
				t.Fatalf("%T is no *client.Error", err)
			}
			if strings.HasPrefix(detailed.Reason, "SYS_") && !strings.HasSuffix(err.Error(), "(request r-1)") {
				t.Errorf("%q does not name the request", err)
			}
			if name == "invalid" {
				if want := "not valid: limit must be at least 1; key is required (request r-1)"; err.Error() != want {
					t.Errorf("got %q, want %q", err, want)
				}
				if len(detailed.Fields) != 2 || detailed.Fields[1] != (client.FieldError{Field: "key", Message: "key is required"}) {
					t.Errorf("fields %v", detailed.Fields)
				}
			}
		})
	}
}

func TestRetriesOnlyWhatIsSafe(t *testing.T) {
	away := status.Error(codes.Unavailable, "away")
	for name, test := range map[string]struct {
		method  string
		call    func(context.Context, *client.Client) error
		fail    error
		retries int
		want    int
		ok      bool
	}{
		"read":              {"GetRule", func(ctx context.Context, c *client.Client) error { _, err := c.GetRule(ctx, "a"); return err }, away, 0, 3, true},
		"read, never again": {"GetRule", func(ctx context.Context, c *client.Client) error { _, err := c.GetRule(ctx, "a"); return err }, away, -1, 1, false},
		"read, not found":   {"GetRule", func(ctx context.Context, c *client.Client) error { _, err := c.GetRule(ctx, "a"); return err }, status.Error(codes.NotFound, ""), 0, 1, false},
		"write": {"CreateRule", func(ctx context.Context, c *client.Client) error {
			_, err := c.CreateRule(ctx, client.RuleSpec{})
			return err
		}, away, 0, 1, false},
		"reset": {"ResetLimit", func(ctx context.Context, c *client.Client) error { _, err := c.Reset(ctx, "user", "a"); return err }, away, 0, 1, false},
		"check": {"Check", func(ctx context.Context, c *client.Client) error {
			_, err := c.Check(ctx, client.Check{Scope: "user"})
			return err
		}, away, 0, 1, false},
		"check with an id": {"Check", func(ctx context.Context, c *client.Client) error {
			_, err := c.Check(ctx, client.Check{Scope: "user", RequestID: "1"})
			return err
		}, away, 0, 3, true},
		"peek": {"Check", func(ctx context.Context, c *client.Client) error {
			_, err := c.Check(ctx, client.Check{Scope: "user", Peek: true})
			return err
		}, away, 0, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{fail: once(2, test.fail), check: func(context.Context, *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error) {
				return &ratelimitv1.CheckRateLimitResponse{Allowed: true}, nil
			}}
			err := test.call(t.Context(), dial(t, s, client.Options{Retries: test.retries}))
			if (err == nil) != test.ok || s.count(test.method) != test.want {
				t.Errorf("got %v after %d calls, want success %t after %d", err, s.count(test.method), test.ok, test.want)
			}
		})
	}
}

func TestDeadlines(t *testing.T) {
	hang := func(ctx context.Context, _ *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c := dial(t, &service{check: hang}, client.Options{CheckTimeout: 20 * time.Millisecond})
	if err := c.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := c.Check(t.Context(), client.Check{Scope: "user", Identifier: "a"})
	if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("CheckTimeout: got %v", err)
	}
	c = dial(t, &service{check: hang}, client.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Check(ctx, client.Check{Scope: "user", Identifier: "a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a nearer deadline: got %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := c.GetRule(ctx, "a"); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnavailable) {
		t.Errorf("canceled: got %v", err)
	}
}

func TestTokens(t *testing.T) {
	s := &service{check: func(context.Context, *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error) {
		return &ratelimitv1.CheckRateLimitResponse{}, nil
	}}
	asked := 0
	c := dial(t, s, client.Options{Token: func(context.Context) (string, error) { asked++; return fmt.Sprint("token-", asked), nil }})
	for i := 1; i <= 2; i++ {
		if _, err := c.GetRule(t.Context(), "a"); err != nil || s.token != fmt.Sprint("token-", i) {
			t.Errorf("call %d sent %q, %v", i, s.token, err)
		}
	}
	if _, err := c.Check(t.Context(), client.Check{Scope: "user"}); err != nil || s.token != "" {
		t.Errorf("a check sent the token %q, %v", s.token, err)
	}

	if _, err := client.New(client.Options{Address: "limits.example:443", Token: client.StaticToken("a")}); !errors.Is(err, client.ErrOptions) {
		t.Errorf("a token in the clear: got %v, want ErrOptions", err)
	}
	for _, options := range []client.Options{{}, {Address: "a:1", Timeout: -1}, {Address: "a:1", CheckTimeout: -1}} {
		if _, err := client.New(options); !errors.Is(err, client.ErrOptions) {
			t.Errorf("%+v: got %v, want ErrOptions", options, err)
		}
	}
	c = dial(t, s, client.Options{Token: func(context.Context) (string, error) { return "", errors.New("no token today") }})
	if _, err := c.GetRule(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "no token today") {
		t.Errorf("a source that fails: got %v", err)
	}
}

func TestConnected(t *testing.T) {
	c, err := client.New(client.Options{Address: "unix:" + t.TempDir() + "/nobody"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Connected(ctx); !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := c.GetRule(t.Context(), "a"); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("without a server: got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Connected(t.Context()); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("closed: got %v", err)
	}
}

func TestCheckIsSentWhole(t *testing.T) {
	var got *ratelimitv1.CheckRateLimitRequest
	s := &service{check: func(_ context.Context, r *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error) {
		got = r
		return &ratelimitv1.CheckRateLimitResponse{Allowed: true}, nil
	}}
	c := dial(t, s, client.Options{})
	one, zero, back := int64(1), int64(0), int64(-2)
	for name, test := range map[string]struct {
		check client.Check
		want  *ratelimitv1.CheckRateLimitRequest
	}{
		"scope":       {client.Check{Scope: "user", Identifier: "ann", Window: time.Minute}, &ratelimitv1.CheckRateLimitRequest{Scope: "user", Identifier: "ann", WindowSecs: 60, Cost: &one}},
		"rule":        {client.Check{RuleID: "r", Subject: "ann", Cost: -2, RequestID: "id"}, &ratelimitv1.CheckRateLimitRequest{RuleId: "r", Subject: "ann", Cost: &back, RequestId: "id"}},
		"rules only":  {client.Check{Domain: "edge", RulesOnly: true, Descriptors: []ratelimit.Descriptor{{}}}, &ratelimitv1.CheckRateLimitRequest{Domain: "edge", RulesOnly: true, Cost: &one, Descriptors: []*ratelimitv1.Descriptor{{}}}},
		"peek":        {client.Check{Scope: "user", Identifier: "a\xffb", Peek: true}, &ratelimitv1.CheckRateLimitRequest{Scope: "user", Identifier: "a\uFFFDb", Cost: &zero, Peek: true}},
		"descriptors": {client.Check{Domain: "edge", Descriptors: []ratelimit.Descriptor{{Entries: []ratelimit.Entry{{Key: "k", Value: "v\xff"}}, HasCost: true}, {Limit: &ratelimit.Limit{Name: "own", Algorithm: ratelimit.FixedWindow, Count: 5, Calendar: ratelimit.CalendarMonth, Kind: ratelimit.Quota}}}}, &ratelimitv1.CheckRateLimitRequest{Domain: "edge", Cost: &one, Descriptors: []*ratelimitv1.Descriptor{{Entries: []*ratelimitv1.Entry{{Key: "k", Value: "v\uFFFD"}}, Cost: &zero}, {Limit: &ratelimitv1.RuleLimit{Name: "own", Algorithm: "fixed_window", Limit: 5, WindowMs: 2_592_000_000, Kind: "quota", Calendar: "month"}}}}},
	} {
		if _, err := c.Check(t.Context(), test.check); err != nil || !proto.Equal(got, test.want) {
			t.Errorf("%s: sent %v, %v; want %v", name, got, err, test.want)
		}
	}
	for _, check := range []client.Check{
		{Scope: "user", Window: time.Millisecond},
		{Scope: "user", Window: -time.Second},
		{Domain: "edge", Descriptors: []ratelimit.Descriptor{{Limit: &ratelimit.Limit{}}}},
		{Domain: "edge", Descriptors: []ratelimit.Descriptor{{Limit: &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: 1, Window: 1500 * time.Microsecond}}}},
	} {
		if _, err := c.Check(t.Context(), check); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", check, err)
		}
	}
}

func TestDecisions(t *testing.T) {
	soon := time.Now().Add(30 * time.Second)
	result := func(allowed bool, remaining int64) *ratelimitv1.LimitResult {
		return &ratelimitv1.LimitResult{Name: "api", Limit: 10, WindowMs: 60_000, Burst: 10, Kind: "quota", Allowed: allowed, Remaining: remaining, ResetAt: soon.Unix(), RetryAfterMs: 2500}
	}
	for name, test := range map[string]struct {
		reply  *ratelimitv1.CheckRateLimitResponse
		cause  respond.Cause
		denied bool // the limit is
		limits int
	}{
		"allowed":          {&ratelimitv1.CheckRateLimitResponse{Allowed: true, Limit: 10, Remaining: 9, ResetAt: soon.Unix(), Results: []*ratelimitv1.LimitResult{result(true, 9)}}, respond.LimitReached, false, 1},
		"denied":           {&ratelimitv1.CheckRateLimitResponse{Limit: 10, Results: []*ratelimitv1.LimitResult{result(false, 0)}}, respond.LimitReached, true, 1},
		"shadow":           {&ratelimitv1.CheckRateLimitResponse{Allowed: true, Results: []*ratelimitv1.LimitResult{result(false, 0)}}, respond.LimitReached, false, 1},
		"denied, degraded": {&ratelimitv1.CheckRateLimitResponse{Degraded: true, Results: []*ratelimitv1.LimitResult{result(false, 0)}}, respond.LimitReached, true, 1},
		"failed closed":    {&ratelimitv1.CheckRateLimitResponse{Degraded: true, Reason: "redis unavailable, fail-closed"}, respond.ReducedCapacity, false, 0},
		"refused":          {&ratelimitv1.CheckRateLimitResponse{}, respond.Refused, false, 0},
		"hostile numbers":  {&ratelimitv1.CheckRateLimitResponse{Allowed: true, ResetAt: -1, Results: []*ratelimitv1.LimitResult{{WindowMs: 1 << 62, RetryAfterMs: -1, ResetAt: 1 << 62}}}, respond.LimitReached, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, &service{check: func(context.Context, *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error) {
				return test.reply, nil
			}}, client.Options{})
			got, err := c.Check(t.Context(), client.Check{Scope: "user", Identifier: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed != test.reply.GetAllowed() || got.Cause != test.cause || got.Degraded != test.reply.GetDegraded() || len(got.Limits) != test.limits {
				t.Fatalf("got %+v", got)
			}
			for _, l := range got.Limits {
				if l.Denied != test.denied || l.Window < 0 || l.RetryAfter < 0 || l.ResetAfter < 0 {
					t.Errorf("limit %+v", l)
				}
				if l.Name == "api" && (l.Kind != ratelimit.Quota || l.Burst != 0 || l.Count != 10 || l.Window != time.Minute || l.ResetAfter < 25*time.Second || l.ResetAfter > 31*time.Second) {
					t.Errorf("limit %+v", l)
				}
			}
		})
	}
}

func TestAllRules(t *testing.T) {
	s := &service{}
	for i := range 250 {
		s.rules = append(s.rules, &ratelimitv1.RateLimitRule{Id: fmt.Sprint(i)})
	}
	s.rules[101].Id = "99" // a rule that moved to another page while they were read
	c := dial(t, s, client.Options{})
	n := 0
	for rule, err := range c.AllRules(t.Context(), client.RuleFilter{}) {
		if err != nil || rule.ID == "" {
			t.Fatal(rule, err)
		}
		n++
	}
	if n != 249 || s.count("ListRules") != 3 {
		t.Errorf("%d rules of %d pages, want 249 of 3", n, s.count("ListRules"))
	}
	s.fail = func(call int) error {
		if call == 5 {
			return failure(codes.PermissionDenied, "SYS_RATELIMIT_FORBIDDEN", "no")
		}
		return nil
	}
	n = 0
	var failed error
	for _, err := range c.AllRules(t.Context(), client.RuleFilter{}) {
		if err != nil {
			failed = err
			break
		}
		n++
	}
	if n != 100 || !errors.Is(failed, client.ErrForbidden) {
		t.Errorf("%d rules, then %v; want 100 and ErrForbidden", n, failed)
	}
	s.fail = nil
	before := s.count("ListRules")
	for _, err := range c.AllRules(t.Context(), client.RuleFilter{}) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	if read := s.count("ListRules") - before; read != 1 {
		t.Errorf("%d pages were read for one rule", read)
	}
}

func BenchmarkCheck(b *testing.B) {
	c := dial(b, &service{check: func(context.Context, *ratelimitv1.CheckRateLimitRequest) (*ratelimitv1.CheckRateLimitResponse, error) {
		return &ratelimitv1.CheckRateLimitResponse{Allowed: true, Results: []*ratelimitv1.LimitResult{{Name: "api", Limit: 10, WindowMs: 1000}}}, nil
	}}, client.Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Check(b.Context(), client.Check{Scope: "user", Identifier: "ann"}); err != nil {
			b.Fatal(err)
		}
	}
}
