package rulestore_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rulestore"
	"github.com/weirhq/weir/test/servers"
)

var tester = rulestore.Actor{Subject: "tester", RequestID: "request-1"}

func TestPostgres(t *testing.T) {
	server := servers.Postgres(t)
	exercise(t, func(t testing.TB) func(rulestore.Options) rulestore.Store {
		database := server.Database(t)
		return func(options rulestore.Options) rulestore.Store {
			return openPostgres(t, database, rulestore.PostgresOptions{Options: options})
		}
	})
}

func TestSQLite(t *testing.T) {
	exercise(t, func(t testing.TB) func(rulestore.Options) rulestore.Store {
		path := filepath.Join(t.TempDir(), "new folder", "50%? rules#1.db")
		return func(options rulestore.Options) rulestore.Store { return openSQLite(t, path, options) }
	})
}

// exercise runs the contract of Store. prepare makes an empty database and returns a function that opens it, as each of
// several replicas would.
func exercise(t *testing.T, prepare func(testing.TB) func(rulestore.Options) rulestore.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, func(rulestore.Options) rulestore.Store){
		"a rule's life":              testLife,
		"created rule has defaults":  testDefaults,
		"same match twice":           testExists,
		"unknown rule":               testNotFound,
		"update replaces":            testUpdate,
		"stale version":              testStale,
		"one of racing updates wins": testRacingUpdates,
		"one of racing creates wins": testRacingCreates,
		"nothing faulty is stored":   testInvalid,
		"any text":                   testAnyText,
		"pages":                      testPages,
		"page bounds":                testPageBounds,
		"order of creation":          testOrder,
		"all and revision":           testAll,
		"an error ends all":          testAllEnds,
		"audit":                      testAudit,
		"audit filter":               testAuditFilter,
		"apply":                      testApply,
		"apply is all or nothing":    testApplyRefused,
		"apply many":                 testApplyMany,
		"apply moves a match":        testApplyMoves,
		"watch":                      testWatch,
		"watch another replica":      testWatchReplica,
		"watch repeats after error":  testWatchError,
		"8 open at once":             testConcurrentOpen,
		"contexts":                   testContexts,
		"closed":                     testClosed,
		"stored for good":            testReopen,
		"readers during writes":      testConsistentView,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has a database of its own
			test(t, prepare(t))
		})
	}
}

func openPostgres(t testing.TB, database *servers.PostgresDatabase, options rulestore.PostgresOptions) rulestore.Store {
	t.Helper()
	options.Host, options.Port, options.Name = database.Host(), uint16(database.Port()), database.Name
	options.SSLMode = "disable"
	if options.User == "" {
		options.User = servers.PostgresUser
	}
	if options.Password == nil {
		options.Password = func() (string, error) { return servers.PostgresPassword, nil }
	}
	quiet(&options.Options)
	store, err := rulestore.OpenPostgres(options)
	return closing(t, store, err)
}

func openSQLite(t testing.TB, path string, options rulestore.Options) rulestore.Store {
	t.Helper()
	quiet(&options)
	store, err := rulestore.OpenSQLite(rulestore.SQLiteOptions{Options: options, Path: path})
	return closing(t, store, err)
}

func quiet(options *rulestore.Options) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
}

func closing(t testing.TB, store rulestore.Store, err error) rulestore.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return store
}

func rule(scope, pattern string) rulestore.Rule {
	return rulestore.Rule{
		Scope: scope, IdentifierPattern: pattern, Name: scope + "-" + pattern,
		Limit: 100, WindowSeconds: 60, Algorithm: ratelimit.TokenBucket, Enabled: true,
	}
}

func create(t testing.TB, store rulestore.Store, r rulestore.Rule) rulestore.Rule {
	t.Helper()
	created, err := store.Create(t.Context(), r, tester)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func wantErr(t testing.TB, err, sentinel error, words ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("error %v, want one that is %q", err, sentinel)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not mention %q", err, word)
		}
	}
}

func same(t testing.TB, what string, got, want rulestore.Rule) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got\n%+v, want\n%+v", what, got, want)
	}
}

func allRules(t testing.TB, store rulestore.Store) (rules []rulestore.Rule, revision int64) {
	t.Helper()
	revision, err := store.All(t.Context(), func(r *rulestore.Rule) error {
		rules = append(rules, *r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rules, revision
}

func testLife(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 789_999_999, time.FixedZone("east", 3600))
	store := open(rulestore.Options{Now: func() time.Time { return at }})
	ctx := t.Context()
	if err := store.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	given := rulestore.Rule{
		ID: "018F3F5E-9D3C-7C7B-8F6E-0D9C1E2B3A4D", Domain: "edge", Scope: "endpoint", IdentifierPattern: "/api/v1/orders",
		Name: "orders", Limit: 1 << 40, WindowSeconds: rulestore.MaxWindowSeconds, Algorithm: ratelimit.FixedWindow,
	}
	want := given
	want.ID = strings.ToLower(given.ID)
	want.Version = 1
	want.CreatedAt = time.Date(2031, 2, 3, 3, 5, 6, 789_000_000, time.UTC)
	want.UpdatedAt = want.CreatedAt
	same(t, "created", create(t, store, given), want)
	got, err := store.Get(ctx, given.ID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "read", got, want)
	if err := store.Delete(ctx, given.ID, 1, tester); err != nil {
		t.Fatal(err)
	}
	_, err = store.Get(ctx, given.ID)
	wantErr(t, err, rulestore.ErrNotFound, given.ID)
	same(t, "created again", create(t, store, given), want)
}

func testDefaults(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	before := time.Now().Add(-time.Millisecond)
	created := create(t, store, rule("user", "*"))
	if _, err := uuid.Parse(created.ID); err != nil {
		t.Errorf("id %q: %v", created.ID, err)
	}
	if created.Domain != rulestore.DefaultDomain {
		t.Errorf("domain %q", created.Domain)
	}
	if created.CreatedAt.Before(before) || created.CreatedAt.After(time.Now()) || created.CreatedAt.Location() != time.UTC {
		t.Errorf("created at %v", created.CreatedAt)
	}
}

func testExists(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	ctx := t.Context()
	first := create(t, store, rule("user", "*"))
	_, err := store.Create(ctx, rule("user", "*"), tester)
	wantErr(t, err, rulestore.ErrExists, "k1s0 user:*")

	other := rule("user", "*")
	other.Domain = "other"
	create(t, store, other)
	create(t, store, rule("service", "*"))
	second := create(t, store, rule("user", "u-1"))

	sameID := rule("user", "u-2")
	sameID.ID = first.ID
	_, err = store.Create(ctx, sameID, tester)
	wantErr(t, err, rulestore.ErrExists, first.ID)

	second.IdentifierPattern = "*"
	_, err = store.Update(ctx, second, 0, tester)
	wantErr(t, err, rulestore.ErrExists, "k1s0 user:*")
}

func testNotFound(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	ctx := t.Context()
	revision, err := store.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	hostile := []string{
		uuid.NewString(), "", "1", "{018f3f5e-9d3c-7c7b-8f6e-0d9c1e2b3a4d}", "018f3f5e9d3c7c7b8f6e0d9c1e2b3a4d",
		"'; DROP TABLE weir_rules; --", "\x00", "\xff\xfe", strings.Repeat("a", 1<<20),
	}
	for _, id := range hostile {
		_, err := store.Get(ctx, id)
		wantErr(t, err, rulestore.ErrNotFound)
		if len(err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		wantErr(t, store.Delete(ctx, id, 0, tester), rulestore.ErrNotFound)
		r := rule("user", "*")
		r.ID = id
		_, err = store.Update(ctx, r, 0, tester)
		if !errors.Is(err, rulestore.ErrNotFound) && !errors.Is(err, rulestore.ErrInvalid) {
			t.Errorf("update of rule %.40q: %v", id, err)
		}
	}
	if after, err := store.Revision(ctx); err != nil || after != revision {
		t.Errorf("revision %d (%v) after refused changes, want %d", after, err, revision)
	}
}

func testUpdate(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	store := open(rulestore.Options{Now: func() time.Time { return now }})
	created := create(t, store, rule("user", "*"))
	now = now.Add(1500 * time.Millisecond)
	want := rulestore.Rule{
		ID: created.ID, Domain: "edge", Scope: "service", IdentifierPattern: "api-*", Name: "",
		Limit: 5, WindowSeconds: 1, Algorithm: ratelimit.LeakyBucket, Burst: 9, Enabled: false,
		CreatedAt: created.CreatedAt, UpdatedAt: now, Version: 2,
	}
	given := want
	given.CreatedAt, given.UpdatedAt, given.Version = time.Time{}, time.Time{}, 77 // the store's own fields do not count
	updated, err := store.Update(t.Context(), given, created.Version, tester)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "updated", updated, want)
	got, err := store.Get(t.Context(), created.ID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "read", got, want)
}

func testStale(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	ctx := t.Context()
	r := create(t, store, rule("user", "*"))
	for range 3 {
		if _, err := store.Update(ctx, r, 0, tester); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []int64{1, 3, 5, math.MaxInt64} {
		_, err := store.Update(ctx, r, version, tester)
		wantErr(t, err, rulestore.ErrStale, "version 4")
		wantErr(t, store.Delete(ctx, r.ID, version, tester), rulestore.ErrStale)
	}
	_, err := store.Update(ctx, r, -1, tester)
	wantErr(t, err, rulestore.ErrInvalid, "-1")
	if err := store.Delete(ctx, r.ID, 4, tester); err != nil {
		t.Error(err)
	}
}

func testRacingUpdates(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	const racers, rounds = 8, 5
	stores := []rulestore.Store{open(rulestore.Options{}), open(rulestore.Options{})}
	r := create(t, stores[0], rule("user", "*"))
	for round := range rounds {
		var winners, stale atomic.Int64
		var wg sync.WaitGroup
		for racer := range racers {
			wg.Go(func() {
				mine := r
				mine.Limit = int64(1 + round*racers + racer)
				_, err := stores[racer%2].Update(t.Context(), mine, r.Version, tester)
				switch {
				case err == nil:
					winners.Add(1)
				case errors.Is(err, rulestore.ErrStale):
					stale.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if winners.Load() != 1 || stale.Load() != racers-1 {
			t.Fatalf("%d winners and %d stale of %d", winners.Load(), stale.Load(), racers)
		}
		var err error
		if r, err = stores[1].Get(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := stores[0].Audit(t.Context(), rulestore.AuditFilter{RuleID: r.ID})
	if err != nil || len(entries) != 1+rounds {
		t.Errorf("%d audit entries (%v), want %d", len(entries), err, 1+rounds)
	}
}

func testRacingCreates(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	const racers = 8
	stores := []rulestore.Store{open(rulestore.Options{}), open(rulestore.Options{})}
	var winners atomic.Int64
	var wg sync.WaitGroup
	for racer := range racers {
		wg.Go(func() {
			_, err := stores[racer%2].Create(t.Context(), rule("user", "*"), tester)
			switch {
			case err == nil:
				winners.Add(1)
			case !errors.Is(err, rulestore.ErrExists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if winners.Load() != 1 {
		t.Errorf("%d creations won", winners.Load())
	}
}

func testInvalid(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	ctx := t.Context()
	kept := create(t, store, rule("user", "kept"))
	for name, spoil := range map[string]func(*rulestore.Rule){
		"limit":              func(r *rulestore.Rule) { r.Limit = 0 },
		"limit -1":           func(r *rulestore.Rule) { r.Limit = -1 },
		"limit 109951162777": func(r *rulestore.Rule) { r.Limit = ratelimit.MaxCount + 1 },
		"window_seconds 0":   func(r *rulestore.Rule) { r.WindowSeconds = 0 },
		"window_seconds -9":  func(r *rulestore.Rule) { r.WindowSeconds = math.MinInt64 },
		"window_seconds 9":   func(r *rulestore.Rule) { r.WindowSeconds = math.MaxInt64 },
		"algorithm":          func(r *rulestore.Rule) { r.Algorithm = 0 },
		"burst":              func(r *rulestore.Rule) { r.Burst = -1 },
		"burst has":          func(r *rulestore.Rule) { r.Algorithm = ratelimit.FixedWindow; r.Burst = 1 },
		"scope is empty":     func(r *rulestore.Rule) { r.Scope = "" },
		"identifier_pattern": func(r *rulestore.Rule) { r.IdentifierPattern = "" },
		"scope":              func(r *rulestore.Rule) { r.Scope = strings.Repeat("s", rulestore.MaxScopeLength+1) },
		"domain":             func(r *rulestore.Rule) { r.Domain = strings.Repeat("d", rulestore.MaxDomainLength+1) },
		"name":               func(r *rulestore.Rule) { r.Name = strings.Repeat("ü", rulestore.MaxNameLength/2+1) },
		"1025 bytes":         func(r *rulestore.Rule) { r.IdentifierPattern = strings.Repeat("p", rulestore.MaxPatternLength+1) },
		"control":            func(r *rulestore.Rule) { r.IdentifierPattern = "a\x00b" },
		`name "a\nb"`:        func(r *rulestore.Rule) { r.Name = "a\nb" },
		"UTF-8":              func(r *rulestore.Rule) { r.IdentifierPattern = "a\xffb" },
		"domain \"\\xc3\"":   func(r *rulestore.Rule) { r.Domain = "\xc3" },
		"id ":                func(r *rulestore.Rule) { r.ID = "urn:uuid:018f3f5e-9d3c-7c7b-8f6e-0d9c1e2b3a4d" },
	} {
		faulty := rule("user", "*")
		spoil(&faulty)
		_, err := store.Create(ctx, faulty, tester)
		wantErr(t, err, rulestore.ErrInvalid, name)
		if faulty.ID == "" {
			faulty.ID = kept.ID
			_, err = store.Update(ctx, faulty, 0, tester)
			wantErr(t, err, rulestore.ErrInvalid, name)
		}
	}
	for _, actor := range []rulestore.Actor{
		{},
		{RequestID: "r"},
		{Subject: "a\x00"},
		{Subject: "\xff"},
		{Subject: "a", RequestID: "\n"},
		{Subject: strings.Repeat("a", rulestore.MaxActorLength+1)},
		{Subject: "a", RequestID: strings.Repeat("a", rulestore.MaxActorLength+1)},
	} {
		_, err := store.Create(ctx, rule("user", "*"), actor)
		wantErr(t, err, rulestore.ErrInvalid)
		wantErr(t, store.Delete(ctx, kept.ID, 0, actor), rulestore.ErrInvalid)
	}
	rules, revision := allRules(t, store)
	if !slices.Equal(rules, []rulestore.Rule{kept}) || revision != 1 {
		t.Errorf("at revision %d: %+v", revision, rules)
	}
	several := (&rulestore.Rule{}).Validate()
	wantErr(t, several, rulestore.ErrInvalid, "scope", "identifier_pattern", "limit", "window_seconds")
}

// Whatever text is given is refused as invalid or stored as it is.
func testAnyText(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	text := rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`['"\\%_$;?*{}\[\]<>&|. -]{1,12}`),
		rapid.SampledFrom([]string{"' OR '1'='1", `\u0000`, "%00", "\u2028", "😀", "NULL", "$1", "{}", "\u202e"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) }),
	)
	longest := rule(strings.Repeat("s", rulestore.MaxScopeLength), strings.Repeat("\U0001F600", rulestore.MaxPatternLength/4))
	longest.Name, longest.Domain = strings.Repeat("n", rulestore.MaxNameLength), strings.Repeat("d", rulestore.MaxDomainLength)
	create(t, store, longest)
	rapid.Check(t, func(rt *rapid.T) {
		given := rule(text.Draw(rt, "scope"), text.Draw(rt, "pattern"))
		given.Name, given.Domain = text.Draw(rt, "name"), text.Draw(rt, "domain")
		actor := rulestore.Actor{Subject: text.Draw(rt, "subject"), RequestID: text.Draw(rt, "request id")}
		if rapid.IntRange(0, 3).Draw(rt, "plain actor") > 0 {
			actor = tester
		}
		created, err := store.Create(t.Context(), given, actor)
		if err != nil {
			if !errors.Is(err, rulestore.ErrInvalid) && !errors.Is(err, rulestore.ErrExists) {
				rt.Fatalf("create %+v: %v", given, err)
			}
			if errors.Is(err, rulestore.ErrInvalid) && given.Validate() == nil && actor == tester {
				rt.Fatalf("a valid rule was refused: %v", err)
			}
			return
		}
		stored, err := store.Get(t.Context(), created.ID)
		if err != nil || stored != created {
			rt.Fatalf("stored %+v (%v), want %+v", stored, err, created)
		}
		if stored.Scope != given.Scope || stored.IdentifierPattern != given.IdentifierPattern || stored.Name != given.Name {
			rt.Fatalf("stored %+v, given %+v", stored, given)
		}
		entries, err := store.Audit(t.Context(), rulestore.AuditFilter{RuleID: created.ID, Subject: actor.Subject})
		if err != nil || len(entries) != 1 || entries[0].RequestID != actor.RequestID {
			rt.Fatalf("audit %+v (%v)", entries, err)
		}
		rules, total, err := store.List(t.Context(), rulestore.Filter{Scope: given.Scope, Domain: stored.Domain, PageSize: 1})
		if err != nil || total < 1 || len(rules) != 1 {
			rt.Fatalf("%d of %d listed (%v)", len(rules), total, err)
		}
	})
}

func testPages(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	var changes []rulestore.Change
	for i := range 45 {
		r := rule([]string{"user", "service", "endpoint"}[i%3], fmt.Sprint("id-", i))
		r.Enabled = i%2 == 0
		if i%5 == 0 {
			r.Domain = "edge"
		}
		changes = append(changes, rulestore.Change{Action: rulestore.Create, Rule: r})
	}
	stored, err := store.Apply(t.Context(), changes, tester)
	if err != nil {
		t.Fatal(err)
	}
	for _, filter := range []rulestore.Filter{
		{},
		{PageSize: 7},
		{PageSize: 45},
		{PageSize: 46},
		{PageSize: 1},
		{Scope: "user", PageSize: 4},
		{EnabledOnly: true, PageSize: 10},
		{Domain: "edge", PageSize: 2},
		{Domain: "edge", Scope: "service", EnabledOnly: true, PageSize: 1},
		{Scope: "nobody"},
		{Domain: "nowhere"},
		{Scope: "\x00"},
		{Domain: "\xff"},
		{Scope: strings.Repeat("x", 5000)},
	} {
		var want, got []rulestore.Rule
		for _, r := range stored {
			if (filter.Scope == "" || r.Scope == filter.Scope) && (filter.Domain == "" || r.Domain == filter.Domain) && (!filter.EnabledOnly || r.Enabled) {
				want = append(want, r)
			}
		}
		for filter.Page = 1; ; filter.Page++ {
			rules, total, err := store.List(t.Context(), filter)
			if err != nil {
				t.Fatalf("%+v: %v", filter, err)
			}
			if total != int64(len(want)) {
				t.Errorf("%+v: total %d, want %d", filter, total, len(want))
			}
			if len(rules) == 0 {
				break
			}
			got = append(got, rules...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %d rules\n%+v, want %d\n%+v", filter, len(got), got, len(want), want)
		}
		filter.Page, filter.Offset = 2, 3
		page := cmp.Or(filter.PageSize, rulestore.DefaultPageSize)
		first, end := min(3+page, len(want)), min(3+2*page, len(want))
		if rules, total, err := store.List(t.Context(), filter); err != nil || total != int64(len(want)) || !slices.Equal(rules, want[first:end]) {
			t.Errorf("%+v: got %d rules of %d (%v)\n%+v", filter, len(rules), total, err, rules)
		}
	}
}

func testPageBounds(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	create(t, store, rule("user", "*"))
	for _, filter := range []rulestore.Filter{
		{Page: -1}, {Page: math.MinInt}, {PageSize: -1}, {PageSize: rulestore.MaxPageSize + 1}, {PageSize: math.MaxInt}, {Offset: -1},
	} {
		_, _, err := store.List(t.Context(), filter)
		wantErr(t, err, rulestore.ErrInvalid, "page")
	}
	for _, filter := range []rulestore.Filter{
		{Page: 2}, {Offset: 1}, {Offset: math.MaxInt64}, {Page: math.MaxInt, Offset: math.MaxInt64}, {Page: math.MaxInt}, {Page: math.MaxInt, PageSize: rulestore.MaxPageSize}, {Page: math.MaxInt/rulestore.MaxPageSize + 1, PageSize: rulestore.MaxPageSize},
	} {
		rules, total, err := store.List(t.Context(), filter)
		if err != nil || len(rules) != 0 || total != 1 {
			t.Errorf("%+v: %d rules of %d, %v", filter, len(rules), total, err)
		}
	}
	for _, filter := range []rulestore.AuditFilter{{Limit: -1}, {Limit: rulestore.MaxPageSize + 1}, {Before: -1}, {RuleID: "x"}} {
		_, err := store.Audit(t.Context(), filter)
		wantErr(t, err, rulestore.ErrInvalid)
	}
}

// Rules are listed in the order in which they were made, also within one Apply and one millisecond.
func testOrder(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	store := open(rulestore.Options{Now: func() time.Time { return at }})
	var want []string
	for batch := range 3 {
		var changes []rulestore.Change
		for i := range 20 {
			pattern := fmt.Sprintf("id-%d-%d", 9-batch, 99-i)
			want = append(want, pattern)
			changes = append(changes, rulestore.Change{Action: rulestore.Create, Rule: rule("user", pattern)})
		}
		if _, err := store.Apply(t.Context(), changes, tester); err != nil {
			t.Fatal(err)
		}
	}
	rules, _ := allRules(t, store)
	var got []string
	for _, r := range rules {
		got = append(got, r.IdentifierPattern)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	listed, _, err := store.List(t.Context(), rulestore.Filter{PageSize: 60})
	if err != nil || !slices.Equal(listed, rules) {
		t.Errorf("the list (%v) and all rules differ in order", err)
	}
}

func testAll(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	if rules, revision := allRules(t, store); len(rules) != 0 || revision != 0 {
		t.Errorf("a new store has %d rules and revision %d", len(rules), revision)
	}
	enabled := create(t, store, rule("user", "a"))
	disabled := rule("user", "b")
	disabled.Enabled = false
	disabled = create(t, store, disabled)
	rules, revision := allRules(t, store)
	if !slices.Equal(rules, []rulestore.Rule{enabled, disabled}) || revision != 2 {
		t.Errorf("revision %d: %+v", revision, rules)
	}
	if err := store.Delete(t.Context(), enabled.ID, 0, tester); err != nil {
		t.Fatal(err)
	}
	if after, err := store.Revision(t.Context()); err != nil || after != 3 {
		t.Errorf("revision %d (%v) after a delete, want 3", after, err)
	}
}

func testAllEnds(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	create(t, store, rule("user", "a"))
	create(t, store, rule("user", "b"))
	enough := errors.New("enough")
	calls := 0
	_, err := store.All(t.Context(), func(*rulestore.Rule) error { calls++; return enough })
	if !errors.Is(err, enough) || errors.Is(err, rulestore.ErrUnavailable) || calls != 1 {
		t.Errorf("%d calls, error %v", calls, err)
	}
	allRules(t, store) // the connection is fit for use
}

func testAudit(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	at := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	store := open(rulestore.Options{Now: func() time.Time { return at }})
	ctx := t.Context()
	r, err := store.Create(ctx, rule("user", "*"), rulestore.Actor{Subject: "alice", RequestID: "r-1"})
	if err != nil {
		t.Fatal(err)
	}
	at = at.Add(time.Minute)
	r.Limit, r.Burst = 7, 9
	if _, err := store.Update(ctx, r, 1, rulestore.Actor{Subject: "bob", RequestID: "r-2"}); err != nil {
		t.Fatal(err)
	}
	at = at.Add(time.Minute)
	if err := store.Delete(ctx, r.ID, 2, rulestore.Actor{Subject: `o'brien "x"`}); err != nil {
		t.Fatal(err)
	}
	entries, err := store.Audit(ctx, rulestore.AuditFilter{})
	if err != nil {
		t.Fatal(err)
	}
	first := fmt.Sprintf(`{"id":%q,"domain":"k1s0","scope":"user","identifier_pattern":"*","enabled":true,"name":"user-*","limit":100,
		"window_seconds":60,"algorithm":"token_bucket","created_at":"2030-01-01T12:00:00.000Z","updated_at":"2030-01-01T12:00:00.000Z","version":1}`, r.ID)
	second := fmt.Sprintf(`{"id":%q,"domain":"k1s0","scope":"user","identifier_pattern":"*","enabled":true,"name":"user-*","limit":7,"burst":9,
		"window_seconds":60,"algorithm":"token_bucket","created_at":"2030-01-01T12:00:00.000Z","updated_at":"2030-01-01T12:01:00.000Z","version":2}`, r.ID)
	want := []struct {
		entry         rulestore.AuditEntry
		before, after string
	}{
		{rulestore.AuditEntry{Revision: 3, At: at, Subject: `o'brien "x"`, Action: rulestore.Delete}, second, ""},
		{rulestore.AuditEntry{Revision: 2, At: at.Add(-time.Minute), Subject: "bob", RequestID: "r-2", Action: rulestore.Update}, first, second},
		{rulestore.AuditEntry{Revision: 1, At: at.Add(-2 * time.Minute), Subject: "alice", RequestID: "r-1", Action: rulestore.Create}, "", first},
	}
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d", len(entries), len(want))
	}
	for i, w := range want {
		got := entries[i]
		if !sameJSON(t, got.Before, w.before) || !sameJSON(t, got.After, w.after) {
			t.Errorf("entry %d: before %s, after %s; want %s, %s", i, got.Before, got.After, w.before, w.after)
		}
		became, err := got.Rule()
		if err != nil || (became == nil) != (w.after == "") || became != nil && !sameJSON(t, got.After, documentOf(t, *became)) {
			t.Errorf("entry %d is read as %+v (%v)", i, became, err)
		}
		if got.Revision != w.entry.Revision || !got.At.Equal(w.entry.At) || got.Subject != w.entry.Subject ||
			got.RequestID != w.entry.RequestID || got.Action != w.entry.Action || got.RuleID != r.ID {
			t.Errorf("entry %d: %+v", i, got)
		}
	}
}

func sameJSON(t testing.TB, got json.RawMessage, want string) bool {
	t.Helper()
	if want == "" || got == nil {
		return want == "" && got == nil
	}
	var texts [2]string
	for i, text := range []string{string(got), want} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		sorted, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(sorted)
	}
	return texts[0] == texts[1]
}

func testAuditFilter(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	ctx := t.Context()
	var ids []string
	for i := range 6 {
		r, err := store.Create(ctx, rule("user", fmt.Sprint(i)), rulestore.Actor{Subject: []string{"alice", "bob"}[i%2]})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	var walked []string
	filter := rulestore.AuditFilter{Subject: "alice", Limit: 2}
	for {
		entries, err := store.Audit(ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			break
		}
		for _, entry := range entries {
			walked = append(walked, entry.RuleID)
			filter.Before = entry.Seq
		}
	}
	if want := []string{ids[4], ids[2], ids[0]}; !slices.Equal(walked, want) {
		t.Errorf("walked %v, want %v", walked, want)
	}
	for _, filter := range []rulestore.AuditFilter{{RuleID: uuid.NewString()}, {Subject: "carol"}, {Subject: "\x00"}, {Before: 1}} {
		if entries, err := store.Audit(ctx, filter); err != nil || len(entries) != 0 {
			t.Errorf("%+v: %d entries, %v", filter, len(entries), err)
		}
	}
	one, err := store.Audit(ctx, rulestore.AuditFilter{RuleID: strings.ToUpper(ids[1])})
	if err != nil || len(one) != 1 || one[0].RuleID != ids[1] {
		t.Errorf("%+v, %v", one, err)
	}
}

func testApply(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	ctx := t.Context()
	old, kept := create(t, store, rule("user", "old")), create(t, store, rule("user", "kept"))
	changed := kept
	changed.Limit = 1
	results, err := store.Apply(ctx, []rulestore.Change{
		{Action: rulestore.Create, Rule: rule("user", "new")},
		{Action: rulestore.Delete, Rule: rulestore.Rule{ID: old.ID}, Version: old.Version},
		{Action: rulestore.Update, Rule: changed, Version: kept.Version},
	}, tester)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 3 || results[0].IdentifierPattern != "new" || results[1] != (rulestore.Rule{}) || results[2].Limit != 1 || results[2].Version != 2 {
		t.Errorf("%+v", results)
	}
	rules, revision := allRules(t, store)
	if !slices.Equal(rules, []rulestore.Rule{results[2], results[0]}) || revision != 3 {
		t.Errorf("revision %d: %+v", revision, rules)
	}
	entries, err := store.Audit(ctx, rulestore.AuditFilter{})
	if err != nil || len(entries) != 5 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for i, want := range []rulestore.Action{rulestore.Update, rulestore.Delete, rulestore.Create} {
		if entries[i].Action != want || entries[i].Revision != 3 {
			t.Errorf("entry %d: %s at revision %d", i, entries[i].Action, entries[i].Revision)
		}
	}
	if results, err := store.Apply(ctx, nil, tester); err != nil || len(results) != 0 {
		t.Errorf("nothing applied: %v, %v", results, err)
	}
	if _, after := allRules(t, store); after != 3 {
		t.Errorf("nothing applied, and the revision is %d", after)
	}
}

func testApplyRefused(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	ctx := t.Context()
	a, b := create(t, store, rule("user", "a")), create(t, store, rule("user", "b"))
	good := rulestore.Change{Action: rulestore.Create, Rule: rule("user", "good")}
	likeB := a
	likeB.IdentifierPattern = "b"
	faulty := rule("user", "faulty")
	faulty.Limit = -5
	for name, c := range map[string]struct {
		change rulestore.Change
		want   error
	}{
		"invalid":       {rulestore.Change{Action: rulestore.Create, Rule: faulty}, rulestore.ErrInvalid},
		"no action":     {rulestore.Change{Rule: rule("user", "x")}, rulestore.ErrInvalid},
		"strange":       {rulestore.Change{Action: "\x00drop", Rule: a}, rulestore.ErrInvalid},
		"exists":        {rulestore.Change{Action: rulestore.Create, Rule: rule("user", "b")}, rulestore.ErrExists},
		"twice":         {rulestore.Change{Action: rulestore.Create, Rule: rule("user", "good")}, rulestore.ErrExists},
		"update exists": {rulestore.Change{Action: rulestore.Update, Rule: likeB}, rulestore.ErrExists},
		"stale":         {rulestore.Change{Action: rulestore.Update, Rule: a, Version: 9}, rulestore.ErrStale},
		"stale delete":  {rulestore.Change{Action: rulestore.Delete, Rule: a, Version: 9}, rulestore.ErrStale},
		"not found":     {rulestore.Change{Action: rulestore.Delete, Rule: rulestore.Rule{ID: uuid.NewString()}}, rulestore.ErrNotFound},
		"no id":         {rulestore.Change{Action: rulestore.Update, Rule: rule("user", "x")}, rulestore.ErrNotFound},
		"create at 3":   {rulestore.Change{Action: rulestore.Create, Rule: rule("user", "x"), Version: 3}, rulestore.ErrInvalid},
	} {
		before := rulestore.Change{Action: rulestore.Delete, Rule: b}
		if name == "exists" || name == "update exists" { // b must stay for these
			before = rulestore.Change{Action: rulestore.Create, Rule: rule("user", "good as well")}
		}
		_, err := store.Apply(ctx, []rulestore.Change{good, before, c.change}, tester)
		wantErr(t, err, c.want, "change 3")
		var refused *rulestore.ChangeError
		if !errors.As(err, &refused) || refused.Index != 2 {
			t.Errorf("%s: %v does not name the change", name, err)
		}
	}
	_, err := store.Apply(ctx, []rulestore.Change{{Action: rulestore.Delete, Rule: a}, {Action: rulestore.Update, Rule: a}}, tester)
	wantErr(t, err, rulestore.ErrInvalid, "change 2", a.ID)
	_, err = store.Apply(ctx, make([]rulestore.Change, rulestore.MaxChanges+1), tester)
	wantErr(t, err, rulestore.ErrInvalid, "10000")

	rules, revision := allRules(t, store)
	if !slices.Equal(rules, []rulestore.Rule{a, b}) || revision != 2 {
		t.Errorf("revision %d: %+v", revision, rules)
	}
	if entries, err := store.Audit(ctx, rulestore.AuditFilter{}); err != nil || len(entries) != 2 {
		t.Errorf("%d audit entries (%v), want those of the two creations", len(entries), err)
	}
}

// More changes than one statement takes.
func testApplyMany(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	const n = 603
	store := open(rulestore.Options{})
	ctx := t.Context()
	changes := make([]rulestore.Change, n)
	for i := range changes {
		changes[i] = rulestore.Change{Action: rulestore.Create, Rule: rule("user", fmt.Sprint(i))}
	}
	created, err := store.Apply(ctx, changes, tester)
	if err != nil {
		t.Fatal(err)
	}
	for i := range changes {
		changes[i] = rulestore.Change{Action: rulestore.Update, Rule: created[i], Version: 1}
		changes[i].Rule.Limit = int64(i + 1)
		if i >= n/2 {
			changes[i].Action = rulestore.Delete
		}
	}
	if _, err := store.Apply(ctx, changes, tester); err != nil {
		t.Fatal(err)
	}
	rules, _ := allRules(t, store)
	if len(rules) != n/2 {
		t.Fatalf("%d rules, want %d", len(rules), n/2)
	}
	for i, r := range rules {
		if r.ID != created[i].ID || r.Limit != int64(i+1) || r.Version != 2 {
			t.Fatalf("rule %d: %+v", i, r)
		}
	}
	seen, filter := 0, rulestore.AuditFilter{Limit: rulestore.MaxPageSize}
	for {
		entries, err := store.Audit(ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			break
		}
		seen += len(entries)
		filter.Before = entries[len(entries)-1].Seq
	}
	if seen != 2*n {
		t.Errorf("%d audit entries, want %d", seen, 2*n)
	}
}

// A match that one change frees can be taken by another one of the same Apply.
func testApplyMoves(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	a, b := create(t, store, rule("user", "a")), create(t, store, rule("user", "b"))
	moved := b
	moved.IdentifierPattern = "a"
	if _, err := store.Apply(t.Context(), []rulestore.Change{
		{Action: rulestore.Create, Rule: rule("user", "b")},
		{Action: rulestore.Update, Rule: moved},
		{Action: rulestore.Delete, Rule: a},
	}, tester); err != nil {
		t.Fatal(err)
	}
	rules, _ := allRules(t, store)
	if len(rules) != 2 || rules[0].ID != b.ID || rules[0].IdentifierPattern != "a" || rules[1].IdentifierPattern != "b" {
		t.Errorf("%+v", rules)
	}
}

// watch follows a store in the background until the test ends, and returns the revisions that it was called at.
func watch(t testing.TB, store rulestore.Store) <-chan int64 {
	t.Helper()
	revisions := make(chan int64, 1000)
	background(t, func(ctx context.Context) {
		err := store.Watch(ctx, func(ctx context.Context) error {
			revision, err := store.Revision(ctx)
			if err == nil {
				revisions <- revision
			}
			return err
		})
		if !errors.Is(err, context.Canceled) && !errors.Is(err, rulestore.ErrUnavailable) {
			t.Errorf("watch ended: %v", err)
		}
	})
	return revisions
}

// background runs f until the test ends, and waits for its end.
func background(t testing.TB, f func(context.Context)) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f(t.Context()) }()
	t.Cleanup(func() { <-done })
}

// await waits for a call at a revision, or a later one.
func await(t testing.TB, revisions <-chan int64, want int64, within time.Duration) {
	t.Helper()
	deadline := time.After(within)
	for {
		select {
		case revision := <-revisions:
			if revision >= want {
				return
			}
		case <-deadline:
			t.Fatalf("no call at revision %d within %v", want, within)
		}
	}
}

func testWatch(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{PollInterval: time.Hour}) // only notifications can be in time
	revisions := watch(t, store)
	await(t, revisions, 0, servers.StartTimeout)
	for i := range 5 {
		create(t, store, rule("user", fmt.Sprint(i)))
		await(t, revisions, int64(i+1), 2*time.Second)
	}
}

func testWatchReplica(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	writer, reader := open(rulestore.Options{}), open(rulestore.Options{})
	revisions := watch(t, reader)
	await(t, revisions, 0, servers.StartTimeout)
	for i := range 3 {
		create(t, writer, rule("user", fmt.Sprint(i)))
		await(t, revisions, int64(i+1), 2*time.Second)
	}
}

func testWatchError(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{PollInterval: 10 * time.Millisecond})
	calls := make(chan int, 100)
	background(t, func(ctx context.Context) {
		count := 0
		_ = store.Watch(ctx, func(context.Context) error { // ended by the test
			count++
			calls <- count
			if count < 4 {
				return errors.New("not yet")
			}
			return nil
		})
	})
	for want := 1; want <= 4; want++ {
		select {
		case <-calls:
		case <-time.After(servers.StartTimeout):
			t.Fatalf("call %d did not come", want)
		}
	}
	create(t, store, rule("user", "*"))
	select {
	case <-calls:
	case <-time.After(servers.StartTimeout):
		t.Fatal("no call after a change")
	}
}

func testConcurrentOpen(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	const replicas = 8
	stores := make([]rulestore.Store, replicas)
	for i := range stores {
		stores[i] = open(rulestore.Options{Timeout: servers.StartTimeout})
	}
	var wg sync.WaitGroup
	for i, store := range stores {
		wg.Go(func() {
			if err := store.Ping(t.Context()); err != nil {
				t.Errorf("replica %d: %v", i, err)
				return
			}
			if _, err := store.Create(t.Context(), rule("user", fmt.Sprint(i)), tester); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if rules, revision := allRules(t, stores[0]); len(rules) != replicas || revision != replicas {
		t.Errorf("%d rules at revision %d, want %d", len(rules), revision, replicas)
	}
}

func testContexts(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	for _, c := range []struct {
		ctx         context.Context
		cause       error
		unavailable bool
	}{{canceled, context.Canceled, false}, {late, context.DeadlineExceeded, true}} {
		_, create := store.Create(c.ctx, rule("user", "*"), tester)
		_, get := store.Get(c.ctx, uuid.NewString())
		_, _, list := store.List(c.ctx, rulestore.Filter{})
		_, all := store.All(c.ctx, func(*rulestore.Rule) error { return nil })
		_, audit := store.Audit(c.ctx, rulestore.AuditFilter{})
		for i, err := range []error{create, get, list, all, audit, store.Ping(c.ctx)} {
			if !errors.Is(err, c.cause) || errors.Is(err, rulestore.ErrUnavailable) != c.unavailable {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if err := store.Watch(c.ctx, func(context.Context) error { return nil }); !errors.Is(err, c.cause) {
			t.Errorf("watch: %v", err)
		}
	}
	if rules, _ := allRules(t, store); len(rules) != 0 {
		t.Errorf("%d rules after writes that were called off", len(rules))
	}
}

func testClosed(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	watching := make(chan error, 1)
	started := make(chan struct{}, 1)
	go func() {
		watching <- store.Watch(t.Context(), func(context.Context) error { started <- struct{}{}; return nil })
	}()
	<-started
	for range 2 {
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, <-watching, rulestore.ErrUnavailable, "closed")
	wantErr(t, store.Ping(t.Context()), rulestore.ErrUnavailable, "closed")
	_, err := store.Create(t.Context(), rule("user", "*"), tester)
	wantErr(t, err, rulestore.ErrUnavailable, "closed")
	wantErr(t, store.Watch(t.Context(), func(context.Context) error { return nil }), rulestore.ErrUnavailable, "closed")

	unused := open(rulestore.Options{})
	if err := unused.Close(); err != nil {
		t.Error(err)
	}
	wantErr(t, unused.Ping(t.Context()), rulestore.ErrUnavailable, "closed")
}

func testReopen(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	store := open(rulestore.Options{})
	want := create(t, store, rule("user", "*"))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	rules, revision := allRules(t, open(rulestore.Options{}))
	if !slices.Equal(rules, []rulestore.Rule{want}) || revision != 1 {
		t.Errorf("revision %d: %+v", revision, rules)
	}
}

// Each write adds one rule, so a view at revision n holds n rules, whoever writes meanwhile.
func testConsistentView(t *testing.T, open func(rulestore.Options) rulestore.Store) {
	const writers, each = 4, 10
	store, other := open(rulestore.Options{}), open(rulestore.Options{})
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				if _, err := store.Create(t.Context(), rule("user", fmt.Sprintf("%d-%d", w, i)), tester); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		if rules, revision := allRules(t, other); int64(len(rules)) != revision {
			t.Fatalf("%d rules at revision %d", len(rules), revision)
		}
	}
	if _, revision := allRules(t, other); revision != writers*each {
		t.Errorf("revision %d, want %d", revision, writers*each)
	}
}

// documentOf writes a rule as the audit table has it, through the fields that clients know.
func documentOf(t *testing.T, r rulestore.Rule) string {
	t.Helper()
	const layout = "2006-01-02T15:04:05.000Z"
	document := map[string]any{
		"id": r.ID, "domain": r.Domain, "scope": r.Scope, "identifier_pattern": r.IdentifierPattern, "enabled": r.Enabled, "name": r.Name,
		"limit": r.Limit, "window_seconds": r.WindowSeconds, "algorithm": r.Algorithm.String(), "version": r.Version,
		"created_at": r.CreatedAt.Format(layout), "updated_at": r.UpdatedAt.Format(layout),
	}
	if r.Burst != 0 {
		document["burst"] = r.Burst
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
