package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/client"
	"github.com/weirhq/weir/pkg/embed"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
	"github.com/weirhq/weir/pkg/rules"
)

const embeddedRules = `domain: k1s0
descriptors:
  - key: user
    rate_limit: {name: users, unit: hour, requests_per_unit: 3}
  - key: user
    value: nobody
    action: deny
  - key: user
    value: everybody
    rate_limit: {unlimited: true}
`

func embedded(t *testing.T, store engine.Store) client.Embedded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(embeddedRules), 0o600); err != nil {
		t.Fatal(err)
	}
	table, err := rules.Load([]string{path}, rules.Options{DefaultDomain: "k1s0"})
	if err != nil {
		t.Fatal(err)
	}
	limiter := engine.New(store, engine.Options{})
	limiter.SetTable(table)
	return client.Embedded{Decider: client.OfLimiter(limiter)}
}

// The engine that other processes embed fits as it is.
func TestEmbeddedEngine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(embeddedRules), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := embed.Open(embed.Options{Rules: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	d, err := client.Embedded{Decider: opened}.Check(t.Context(), client.Check{Scope: "user", Identifier: "ann"})
	if err != nil || !d.Allowed || d.Remaining != 2 {
		t.Errorf("got %+v, %v", d, err)
	}
	if _, err := (client.Embedded{Decider: opened}).Check(t.Context(), client.Check{}); !errors.Is(err, client.ErrUncheckable) {
		t.Errorf("nothing to check: got %v, want ErrUncheckable", err)
	}
}

func newStore(t *testing.T) engine.Store {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(store.Close)
	return store
}

func TestEmbedded(t *testing.T) {
	e := embedded(t, newStore(t))
	check := func(c client.Check) client.Decision {
		t.Helper()
		d, err := e.Check(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	ann := client.Check{Scope: "user", Identifier: "ann"}
	if d := check(ann); !d.Allowed || d.Remaining != 2 || d.Limit != 3 || d.RuleID == "" || len(d.Limits) != 1 || d.Limits[0].Name != "users" || !d.ResetAt.After(time.Now()) {
		t.Errorf("the first: %+v", d)
	}
	if d := check(client.Check{Scope: "user", Identifier: "ann", Peek: true}); !d.Allowed || d.Remaining != 2 {
		t.Errorf("a look: %+v", d)
	}
	if d := check(client.Check{Domain: "k1s0", Descriptors: []ratelimit.Descriptor{{Entries: []ratelimit.Entry{{Key: "user", Value: "ann"}}}}, Cost: 2}); !d.Allowed || d.Remaining != 0 {
		t.Errorf("by descriptors, from the same counter: %+v", d)
	}
	if d := check(ann); d.Allowed || d.RetryAfter <= 0 || d.Cause != respond.LimitReached || d.Reason == "" || !d.Limits[0].Denied {
		t.Errorf("over: %+v", d)
	}
	for _, domain := range []string{"k1s0", "nowhere"} {
		free := client.Check{Domain: domain, Descriptors: []ratelimit.Descriptor{{Entries: []ratelimit.Entry{{Key: "stranger", Value: "x"}}}}, RulesOnly: true}
		if d := check(free); !d.Allowed || len(d.Limits) != 0 {
			t.Errorf("by rules only, where none is, in %s: %+v", domain, d)
		}
	}
	if d := check(client.Check{Scope: "user", Identifier: "nobody"}); d.Allowed || d.Cause != respond.Refused {
		t.Errorf("refused: %+v", d)
	}
	if d := check(client.Check{Scope: "user", Identifier: "everybody"}); !d.Allowed || len(d.Limits) != 0 {
		t.Errorf("unlimited: %+v", d)
	}
	if d := check(client.Check{Scope: "service", Identifier: "a"}); !d.Allowed {
		t.Errorf("no rule: %+v", d)
	}
	fallback := &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: 1, Window: time.Hour}
	if err := fallback.Check(); err != nil {
		t.Fatal(err)
	}
	e.Default = fallback
	for i, want := range []bool{true, false} {
		if d := check(client.Check{Scope: "service", Identifier: "b"}); d.Allowed != want {
			t.Errorf("by the default, check %d: %+v", i, d)
		}
	}

	look := client.Check{Domain: "k1s0", Peek: true, Descriptors: []ratelimit.Descriptor{
		{Entries: []ratelimit.Entry{{Key: "user", Value: "bob"}}, Cost: 2, HasCost: true},
	}}
	for range 2 {
		if d := check(look); !d.Allowed || d.Remaining != 3 {
			t.Errorf("a look by descriptors with costs: %+v", d)
		}
	}

	for range 3 {
		if d := check(client.Check{Scope: "user", Identifier: "eve", RequestID: "id-1"}); d.Remaining != 2 {
			t.Errorf("the same request id: %+v", d)
		}
	}
	if _, err := e.Check(t.Context(), client.Check{Scope: "user", Identifier: "eve", Cost: 2, RequestID: "id-1"}); !errors.Is(err, client.ErrConflict) {
		t.Errorf("the request id of another check: got %v, want ErrConflict", err)
	}
	for _, c := range []client.Check{{}, {Domain: "k1s0"}, {RuleID: "a"}, {Scope: "user", Identifier: "a", Window: time.Second}} {
		if _, err := e.Check(t.Context(), c); !errors.Is(err, client.ErrUncheckable) {
			t.Errorf("%+v: got %v, want ErrUncheckable", c, err)
		}
	}
}

type brokenStore struct{ engine.Store }

func (brokenStore) Take(_ context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		charges[i].Err = errors.New("broken")
	}
}

func TestEmbeddedStoreFails(t *testing.T) {
	e := embedded(t, brokenStore{})
	if _, err := e.Check(t.Context(), client.Check{Scope: "user", Identifier: "ann"}); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

func TestGuardNeverAdmitsMoreThanTheLimit(t *testing.T) {
	guard := newGuard(t, client.GuardOptions{Checker: embedded(t, newStore(t)), Timeout: testTimeout})
	var served atomic.Int64
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			response, ok := serve(guard, requestFrom(t, "1.1.1.1:1"))
			_ = response.Body.Close()
			if ok {
				served.Add(1)
			}
		})
	}
	group.Wait()
	if served.Load() != 3 {
		t.Errorf("%d of 50 were served, want 3", served.Load())
	}
}
