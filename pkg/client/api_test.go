package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/client"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/k1s0"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/ruleset"
	"github.com/weirhq/weir/pkg/rulestore"
)

// api is the real service over real connections, with counters in memory and rules in a file and in SQLite. It returns its
// address and a token for each role.
func api(t *testing.T) (address string, tokens map[auth.Role]string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files := write("rules.yaml", "domain: k1s0\ndescriptors:\n  - {key: user, value: filed, rate_limit: {unit: minute, requests_per_unit: 3}}\n")
	tokens = map[auth.Role]string{}
	list := "tokens:\n"
	for _, role := range []auth.Role{auth.Auditor, auth.Operator, auth.Admin} {
		token, hash := auth.NewToken()
		tokens[role] = token
		list += "  - {subject: test, role: " + role.String() + ", hash: \"" + hash + "\"}\n"
	}
	who, err := auth.New(auth.Options{TokensFile: write("tokens.yaml", list)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(who.Close)
	store, err := rulestore.OpenSQLite(rulestore.SQLiteOptions{Path: filepath.Join(dir, "weir.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })

	limiter := engine.New(newStore(t), engine.Options{})
	byDefault := ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 100, Window: time.Minute}
	if err := byDefault.Check(); err != nil {
		t.Fatal(err)
	}
	set, err := ruleset.New(ruleset.Options{
		Paths: []string{files}, Rules: rules.Options{DefaultDomain: "k1s0"}, Default: byDefault, Install: limiter.SetTable,
	})
	if err != nil {
		t.Fatal(err)
	}
	set.Follow(store)
	set.Load(t.Context())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var tasks sync.WaitGroup
	tasks.Go(func() { set.Run(ctx) })

	server := grpc.NewServer()
	k1s0.Register(server, k1s0.New(k1s0.Options{Limiter: limiter, Rules: set, Store: store, Auth: who, Default: byDefault}))
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tasks.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		cancel()
		tasks.Wait()
	})
	return listener.Addr().String(), tokens
}

func as(t *testing.T, address, token string) *client.Client {
	t.Helper()
	options := client.Options{Address: address, CheckTimeout: testTimeout, Timeout: testTimeout}
	if token != "" {
		options.Token = client.StaticToken(token)
	}
	c, err := client.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestLifeOfARule(t *testing.T) {
	address, tokens := api(t)
	c, ctx := as(t, address, tokens[auth.Admin]), t.Context()
	made, err := c.CreateRule(ctx, client.RuleSpec{Scope: "user", IdentifierPattern: "*", Limit: 3, WindowSeconds: 3600})
	if err != nil || made.ID == "" || made.Version != 1 || made.Name != "user-*" || made.Algorithm != "token_bucket" || !made.Enabled ||
		made.Source != "api" || made.Key() != "user:*" || time.Since(made.CreatedAt) > time.Hour {
		t.Fatalf("made %+v, %v", made, err)
	}
	if got, err := c.GetRule(ctx, made.ID); err != nil || got.ID != made.ID || got.Limit != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := c.CreateRule(ctx, client.RuleSpec{Scope: "user", IdentifierPattern: "*", Limit: 1, WindowSeconds: 1}); !errors.Is(err, client.ErrExists) {
		t.Errorf("made twice: %v", err)
	}
	_, err = c.CreateRule(ctx, client.RuleSpec{Scope: "planet", Limit: -1})
	var invalid *client.Error
	if !errors.Is(err, client.ErrInvalid) || !errors.As(err, &invalid) || len(invalid.Fields) < 4 || invalid.RequestID == "" || invalid.Reason == "" {
		t.Errorf("a rule full of faults: %v", err)
	}

	// One counter, whoever asks.
	check := client.Check{Scope: "user", Identifier: "ann"}
	for remaining := int64(2); remaining >= 0; remaining-- {
		d, err := c.Check(ctx, check)
		if err != nil || !d.Allowed || d.Remaining != remaining || d.Limit != 3 || d.RuleID != made.ID || len(d.Limits) != 1 || d.ResetAt.Before(time.Now()) {
			t.Errorf("check: %+v, %v", d, err)
		}
	}
	byRule := client.Check{RuleID: made.ID, Subject: "ann"}
	byDescriptor := client.Check{Domain: "k1s0", Descriptors: []ratelimit.Descriptor{{Entries: []ratelimit.Entry{{Key: "user", Value: "ann"}}}}}
	for _, check := range []client.Check{check, byRule, byDescriptor} {
		if d, err := c.Check(ctx, check); err != nil || d.Allowed || d.RetryAfter <= 0 || d.Reason == "" || !d.Limits[0].Denied {
			t.Errorf("over the limit by %+v: %+v, %v", check, d, err)
		}
	}
	if usage, err := c.Usage(ctx, made.ID, "ann"); err != nil || !usage.Counted || usage.Used != 3 || usage.Remaining != 0 || usage.ResetAt.IsZero() || len(usage.Limits) != 1 {
		t.Errorf("usage %+v, %v", usage, err)
	}
	if message, err := c.Reset(ctx, "user", "ann"); err != nil || message != "rate limit counter reset for user:ann" {
		t.Errorf("reset: %q, %v", message, err)
	}
	if usage, err := c.Usage(ctx, made.ID, "ann"); err != nil || usage.Counted {
		t.Errorf("usage after the reset %+v, %v", usage, err)
	}

	changed, err := c.UpdateRule(ctx, made.ID, made.Version, client.RuleSpec{Scope: "user", IdentifierPattern: "*", Limit: 1, WindowSeconds: 60, Algorithm: "fixed_window", Enabled: new(false)})
	if err != nil || changed.Version != 2 || changed.Enabled || changed.Algorithm != "fixed_window" {
		t.Errorf("changed %+v, %v", changed, err)
	}
	if _, err := c.UpdateRule(ctx, made.ID, made.Version, client.RuleSpec{Scope: "user", IdentifierPattern: "*", Limit: 1, WindowSeconds: 60}); !errors.Is(err, client.ErrStale) {
		t.Errorf("an old version: %v", err)
	}
	if err := c.DeleteRule(ctx, made.ID, made.Version); !errors.Is(err, client.ErrStale) {
		t.Errorf("an old version: %v", err)
	}
	if err := c.DeleteRule(ctx, made.ID, changed.Version); err != nil {
		t.Error(err)
	}
	if err := c.DeleteRule(ctx, made.ID, 0); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
}

func TestRulesOfFiles(t *testing.T) {
	address, tokens := api(t)
	c := as(t, address, tokens[auth.Admin])
	var filed client.Rule
	for rule, err := range c.AllRules(t.Context(), client.RuleFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		filed = rule
	}
	if filed.Source != "file" || filed.Key() != "user:filed" || len(filed.Limits) != 1 || filed.Limits[0].WindowMilliseconds != 60_000 {
		t.Fatalf("the file's rule: %+v", filed)
	}
	if err := c.DeleteRule(t.Context(), filed.ID, 0); !errors.Is(err, client.ErrReadOnly) {
		t.Errorf("deleted: %v", err)
	}
	if _, err := c.CreateRule(t.Context(), client.RuleSpec{Scope: "user", IdentifierPattern: "filed", Limit: 1, WindowSeconds: 1}); !errors.Is(err, client.ErrExists) {
		t.Errorf("made beside it: %v", err)
	}
}

func TestRoles(t *testing.T) {
	address, tokens := api(t)
	ctx := t.Context()
	read := func(c *client.Client) error { _, err := c.ListRules(ctx, client.RuleFilter{}); return err }
	reset := func(c *client.Client) error { _, err := c.Reset(ctx, "user", "ann"); return err }
	remove := func(c *client.Client) error { return c.DeleteRule(ctx, "00000000-0000-0000-0000-000000000000", 0) }
	check := func(c *client.Client) error {
		_, err := c.Check(ctx, client.Check{Scope: "user", Identifier: "ann"})
		return err
	}
	for name, test := range map[string]struct {
		token string
		want  []error // of check, read, reset, delete
	}{
		"nobody":   {"", []error{nil, client.ErrUnauthenticated, client.ErrUnauthenticated, client.ErrUnauthenticated}},
		"stranger": {"stranger-0a6e1e6fd3ea17ae7e6a2f2b", []error{nil, client.ErrUnauthenticated, client.ErrUnauthenticated, client.ErrUnauthenticated}},
		"auditor":  {tokens[auth.Auditor], []error{nil, nil, client.ErrForbidden, client.ErrForbidden}},
		"operator": {tokens[auth.Operator], []error{nil, nil, nil, client.ErrForbidden}},
		"admin":    {tokens[auth.Admin], []error{nil, nil, nil, client.ErrNotFound}},
	} {
		c := as(t, address, test.token)
		for i, use := range []func(*client.Client) error{check, read, reset, remove} {
			if err := use(c); !errors.Is(err, test.want[i]) {
				t.Errorf("%s, call %d: got %v, want %v", name, i, err, test.want[i])
			}
		}
	}
}

func TestPagesOfRules(t *testing.T) {
	address, tokens := api(t)
	c, ctx := as(t, address, tokens[auth.Admin]), t.Context()
	want := []string{"user:filed"}
	for i := range 7 {
		spec := client.RuleSpec{Scope: "endpoint", IdentifierPattern: "/" + string(rune('a'+i)), Limit: 1, WindowSeconds: 1, Enabled: new(i != 3)}
		if _, err := c.CreateRule(ctx, spec); err != nil {
			t.Fatal(err)
		}
		want = append(want, spec.Key())
	}
	keys := func(filter client.RuleFilter) (keys []string) {
		t.Helper()
		for rule, err := range c.AllRules(ctx, filter) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, rule.Key())
		}
		return keys
	}
	if got := keys(client.RuleFilter{PageSize: 3}); !slices.Equal(got, want) {
		t.Errorf("all: %v, want %v", got, want)
	}
	if got := keys(client.RuleFilter{Scope: "endpoint", EnabledOnly: true, PageSize: 2}); len(got) != 6 || slices.Contains(got, "endpoint:/d") {
		t.Errorf("enabled endpoints: %v", got)
	}
	page, err := c.ListRules(ctx, client.RuleFilter{Page: 2, PageSize: 5})
	if err != nil || len(page.Rules) != 3 || page.TotalCount != 8 || page.Page != 2 || page.PageSize != 5 || page.HasNext {
		t.Errorf("page %+v, %v", page, err)
	}
	if _, err := c.ListRules(ctx, client.RuleFilter{PageSize: 101}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a page too large: %v", err)
	}
}

func TestRequestIDs(t *testing.T) {
	address, _ := api(t)
	c := as(t, address, "")
	var group sync.WaitGroup
	var wrong atomic.Int64
	for range 20 {
		group.Go(func() {
			d, err := c.Check(t.Context(), client.Check{Scope: "user", Identifier: "eve", Cost: 2, RequestID: "id-1"})
			if err != nil || d.Remaining != 98 {
				wrong.Add(1)
			}
		})
	}
	group.Wait()
	if wrong.Load() > 0 {
		t.Errorf("%d of 20 equal requests got another answer than that of one charge", wrong.Load())
	}
	if _, err := c.Check(t.Context(), client.Check{Scope: "user", Identifier: "eve", RequestID: "id-1"}); !errors.Is(err, client.ErrConflict) {
		t.Errorf("another request with this id: %v", err)
	}
}

// A service without a gateway and a caller of the API draw from one bucket.
func TestGuardOverTheAPI(t *testing.T) {
	address, tokens := api(t)
	c := as(t, address, tokens[auth.Admin])
	if _, err := c.CreateRule(t.Context(), client.RuleSpec{Scope: "user", IdentifierPattern: "*", Limit: 5, WindowSeconds: 3600}); err != nil {
		t.Fatal(err)
	}
	guard := newGuard(t, client.GuardOptions{Checker: c, Timeout: testTimeout})
	var served atomic.Int64
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			response, ok := serve(guard, requestFrom(t, "1.1.1.1:1"))
			_ = response.Body.Close()
			if ok {
				served.Add(1)
			} else if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" || response.Header.Get("Ratelimit") == "" {
				t.Errorf("refused with %d, %v", response.StatusCode, response.Header)
			}
		})
	}
	group.Wait()
	if served.Load() != 5 {
		t.Errorf("%d of 20 were served, want 5", served.Load())
	}
	if d, err := c.Check(t.Context(), client.Check{Scope: "user", Identifier: "ann"}); err != nil || d.Allowed {
		t.Errorf("a check beside it: %+v, %v", d, err)
	}
}
