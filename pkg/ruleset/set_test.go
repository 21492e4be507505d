package ruleset

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // to write what the store would not

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/rulestore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var tester = rulestore.Actor{Subject: "tester"}

// fixture is a set with files and a store of its own.
type fixture struct {
	t        testing.TB
	set      *Set
	store    rulestore.Store
	folder   string
	database string
	table    atomic.Pointer[rules.Table]
	observed observed
	mu       sync.Mutex
	log      bytes.Buffer
}

// observed counts what an Observer is told.
type observed struct {
	mu                 sync.Mutex
	loaded, refused    int
	safe               bool
	inForce            int
	merged, overridden int
	up                 bool
	from               map[string]State
}

func (o *observed) note(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func (o *observed) RulesLoaded()  { o.note(func() { o.loaded++; o.safe = false }) }
func (o *observed) RulesRefused() { o.note(func() { o.refused++ }) }
func (o *observed) SafeDefault()  { o.note(func() { o.safe = true }) }
func (o *observed) RulesInForce(all []*ratelimit.Rule, _ string) {
	o.note(func() { o.inForce = len(all) })
}

func (o *observed) RulesFrom(source, version string, rules int) {
	o.note(func() {
		if o.from == nil {
			o.from = map[string]State{}
		}
		o.from[source] = State{Source: source, Version: version, Rules: rules}
	})
}

func (o *observed) StoredRules(merged, overridden int) {
	o.note(func() { o.merged, o.overridden = merged, overridden })
}
func (o *observed) RuleStoreUp(up bool) { o.note(func() { o.up = up }) }

func (f *fixture) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(p)
}

func (f *fixture) logged() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.String()
}

func newFixture(t testing.TB, text string) *fixture {
	t.Helper()
	f := &fixture{t: t, folder: t.TempDir(), database: filepath.Join(t.TempDir(), "rules.db")}
	f.write(text)
	var err error
	f.set, err = New(Options{
		Paths: []string{f.folder}, Debounce: 10 * time.Millisecond,
		Default: ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 77, Window: time.Minute},
		Install: func(table *rules.Table) { f.table.Store(table) }, Observer: &f.observed, Logger: slog.New(slog.NewTextHandler(f, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.store, err = rulestore.OpenSQLite(rulestore.SQLiteOptions{
		Options: rulestore.Options{PollInterval: 20 * time.Millisecond, Looked: f.set.Looked, Logger: slog.New(slog.NewTextHandler(f, nil))}, Path: f.database,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.store.Close() })
	f.set.Follow(f.store)
	return f
}

func (f *fixture) write(text string) {
	f.t.Helper()
	path := filepath.Join(f.folder, "rules.yaml")
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) create(pattern string, limit int64) rulestore.Rule {
	f.t.Helper()
	stored, err := f.store.Create(f.t.Context(), rulestore.Rule{
		Scope: "user", IdentifierPattern: pattern, Limit: limit, WindowSeconds: 60, Algorithm: ratelimit.TokenBucket, Enabled: true,
	}, tester)
	if err != nil {
		f.t.Fatal(err)
	}
	return stored
}

// limit is what applies to a user, 0 if nothing does.
func (f *fixture) limit(user string) int64 {
	rule := f.table.Load().Match("k1s0", []ratelimit.Entry{{Key: "user", Value: user}}).Rule
	if rule == nil {
		return 0
	}
	return rule.Limits[0].Count
}

func (f *fixture) expect(user string, limit int64) {
	f.t.Helper()
	if got := f.limit(user); got != limit {
		f.t.Errorf("%s has the limit %d, want %d", user, got, limit)
	}
}

// run runs the set until the test ends.
func (f *fixture) run() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.set.Run(ctx)
	}()
	f.t.Cleanup(func() {
		stop()
		<-ended
	})
}

func (f *fixture) eventually(what string, condition func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			f.t.Fatalf("not within 20 s: %s\n%s", what, f.logged())
		}
		time.Sleep(time.Millisecond)
	}
}

const (
	annInFile = "domain: k1s0\ndescriptors: [{key: user, value: ann, limits: [{limit: 1, window: 1m}]}]\n"
	bobInFile = "domain: k1s0\ndescriptors: [{key: user, value: bob, limits: [{limit: 2, window: 1m}]}]\n"
	faulty    = "domain: k1s0\ndescriptors: [{kye: user}]\n"
)

func TestFilesAndStoreAreOneTable(t *testing.T) {
	f := newFixture(t, annInFile)
	ann, bob := f.create("ann", 10), f.create("bob", 20)
	f.create("*", 30)
	f.set.Load(t.Context())
	f.expect("ann", 1)
	f.expect("bob", 20)
	f.expect("eve", 30)
	view := f.set.View()
	if !view.Overridden(ann.ID) || view.Overridden(bob.ID) || view.Rule(bob.ID) == nil || view.FileRule(bob.ID) != nil || len(view.Files) != 1 {
		t.Errorf("view %+v", view)
	}
	if !view.Taken("k1s0", "user", "ann") || view.Taken("k1s0", "user", "bob") || view.Taken("k1s0", "user", "*") || view.Taken("edge", "user", "ann") {
		t.Error("the places of files are wrong")
	}
	if f.observed.merged != 2 || f.observed.overridden != 1 || f.observed.inForce != 3 || f.observed.loaded != 1 || !f.observed.up {
		t.Errorf("observed %+v", &f.observed)
	}
	if err := f.set.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), ann.ID) {
		t.Errorf("ready: %v", err)
	}
}

func TestRunFollowsBoth(t *testing.T) {
	f := newFixture(t, annInFile)
	f.set.Load(t.Context())
	f.run()
	stored := f.create("bob", 20)
	f.eventually("a new rule counts", func() bool { return f.limit("bob") == 20 })
	f.write(bobInFile)
	f.eventually("the file's rule wins", func() bool { return f.limit("bob") == 2 && f.limit("ann") == 0 })
	f.eventually("it is told", func() bool { return f.set.Ready(t.Context()) != nil })
	f.write(annInFile)
	f.eventually("the stored rule is back", func() bool { return f.limit("bob") == 20 && f.set.Ready(t.Context()) == nil })
	f.write(faulty)
	f.eventually("a faulty file is told", func() bool {
		err := f.set.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "no key")
	})
	f.expect("ann", 1)
	stored.Limit = 21
	if _, err := f.store.Update(t.Context(), stored, 0, tester); err != nil {
		t.Fatal(err)
	}
	f.eventually("changes of the store count while a file is faulty", func() bool { return f.limit("bob") == 21 })
	if err := f.store.Delete(t.Context(), stored.ID, 0, tester); err != nil {
		t.Fatal(err)
	}
	f.eventually("a deleted rule counts no more", func() bool { return f.limit("bob") == 0 })
	stored.Enabled = false
	if _, err := f.store.Create(t.Context(), stored, tester); err != nil {
		t.Fatal(err)
	}
	f.eventually("a disabled rule is known", func() bool { return f.set.View().Rule(stored.ID) != nil })
	f.expect("bob", 0)
}

func TestFaultyFilesAtTheStart(t *testing.T) {
	f := newFixture(t, faulty)
	f.create("bob", 20)
	f.set.Load(t.Context())
	f.expect("ann", 77)
	f.expect("bob", 20)
	if len(f.set.View().Files) != 0 || !f.observed.safe || f.observed.refused != 1 {
		t.Errorf("%+v", &f.observed)
	}
	if err := f.set.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Errorf("ready: %v", err)
	}
	f.run()
	f.write(annInFile)
	f.eventually("the files are right", func() bool { return f.limit("ann") == 1 && f.limit("eve") == 0 })
	f.expect("bob", 20)
}

func TestStoreThatIsAway(t *testing.T) {
	f := newFixture(t, annInFile)
	away := errors.New("dial tcp 10.1.2.3: connection refused")
	f.set.Looked(nil)
	if err := f.set.StoreReady(t.Context()); err != nil {
		t.Error(err)
	}
	for range 3 {
		f.set.Looked(away)
	}
	err := f.set.StoreReady(t.Context())
	if !errors.Is(err, ErrStore) || strings.Contains(err.Error(), "10.1.2.3") || f.observed.up {
		t.Errorf("ready: %v", err)
	}
	f.set.Looked(nil)
	if err := f.set.StoreReady(t.Context()); err != nil {
		t.Error(err)
	}
	if text := f.logged(); strings.Count(text, "10.1.2.3") != 1 || strings.Count(text, "answers again") != 1 {
		t.Errorf("each change is to be logged once:\n%s", text)
	}

	f.create("bob", 20)
	f.set.Load(t.Context())
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Refresh(t.Context()); !errors.Is(err, rulestore.ErrUnavailable) {
		t.Errorf("refresh: %v", err)
	}
	f.set.Load(t.Context())
	f.expect("bob", 20)
	f.expect("ann", 1)
	if f.set.StoreReady(t.Context()) == nil {
		t.Error("a closed store is ready")
	}
}

func TestUnreadableRuleTakesNothingElseAway(t *testing.T) {
	f := newFixture(t, annInFile)
	f.create("bob", 20)
	bad := f.create("eve", 30)
	f.set.Load(t.Context())
	database, err := sql.Open("sqlite", f.database)
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	for _, statement := range []string{
		fmt.Sprintf(`UPDATE weir_rules SET body = '{}' WHERE id = '%s'`, bad.ID), `UPDATE weir_revision SET revision = revision + 1`,
	} {
		if _, err := database.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.set.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.expect("bob", 20)
	f.expect("eve", 0)
	if err := f.set.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), bad.ID) {
		t.Errorf("ready: %v", err)
	}
	if err := f.store.Delete(t.Context(), bad.ID, 0, tester); err != nil {
		t.Fatal(err)
	}
	f.set.Written(t.Context())
	if err := f.set.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
}

func TestWrittenCountsAtOnce(t *testing.T) {
	f := newFixture(t, annInFile)
	f.set.Load(t.Context())
	f.create("bob", 20)
	f.set.Written(t.Context())
	f.expect("bob", 20)

	f.set.store.turn <- struct{}{} // someone else reads, and takes long
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.set.Written(ctx)
	if err := f.set.Refresh(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-f.set.store.turn
}

func TestDefaultThatCannotBe(t *testing.T) {
	if _, err := New(Options{Install: func(*rules.Table) {}}); !errors.Is(err, ratelimit.ErrLimit) {
		t.Errorf("error %v", err)
	}
}

// Names that the store takes and rule files do not, and scopes that nobody would write, make no fault.
func TestOddStoredRules(t *testing.T) {
	f := newFixture(t, annInFile)
	for _, rule := range []rulestore.Rule{
		{Scope: "user", IdentifierPattern: "a", Name: "line\u2028end"},
		{Scope: "us*", IdentifierPattern: "**"},
		{Scope: "user", IdentifierPattern: "**"},
		{Scope: "user", IdentifierPattern: strings.Repeat("*a", 512)},
		{Scope: "user", IdentifierPattern: "x", Domain: "another"},
	} {
		rule.Limit, rule.WindowSeconds, rule.Algorithm, rule.Enabled = 5, 60, ratelimit.FixedWindow, true
		if _, err := f.store.Create(t.Context(), rule, tester); err != nil {
			t.Fatal(err)
		}
	}
	f.set.Load(t.Context())
	if err := f.set.Ready(t.Context()); err != nil || f.observed.merged != 5 {
		t.Errorf("%v, %d merged\n%s", err, f.observed.merged, f.logged())
	}
}

// counting counts how often all rules were read.
type counting struct {
	rulestore.Store
	reads atomic.Int64
}

func (c *counting) All(ctx context.Context, each func(*rulestore.Rule) error) (int64, error) {
	c.reads.Add(1)
	return c.Store.All(ctx, each)
}

// What is in memory after any changes is what is in the store, in its order, and all rules are read again only when the
// audit table does not tell.
func TestCatchingUp(t *testing.T) {
	f := newFixture(t, annInFile)
	store := &counting{Store: f.store}
	f.set.Follow(store)
	same := func(what string, reads int64) {
		t.Helper()
		if err := f.set.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		var all []rulestore.Rule
		if _, err := f.store.All(t.Context(), func(rule *rulestore.Rule) error { all = append(all, *rule); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.set.store.stored, all) {
			t.Errorf("%s: in memory is\n%+v, in the store\n%+v", what, f.set.store.stored, all)
		}
		if got := store.reads.Swap(0); got != reads {
			t.Errorf("%s: all rules were read %d times, want %d", what, got, reads)
		}
	}
	apply := func(changes ...rulestore.Change) []rulestore.Rule {
		t.Helper()
		made, err := f.store.Apply(t.Context(), changes, tester)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	newRule := func(pattern string) rulestore.Change {
		return rulestore.Change{Action: rulestore.Create, Rule: rulestore.Rule{
			Scope: "user", IdentifierPattern: pattern, Limit: 5, WindowSeconds: 60, Algorithm: ratelimit.LeakyBucket, Burst: 3, Enabled: true,
		}}
	}
	f.set.Load(t.Context())
	same("the start", 1)
	same("nothing new", 0)
	a := f.create("a", 1)
	same("the first rule", 0)
	b := f.create("b", 2)
	apply(newRule("c"), newRule("d"), rulestore.Change{Action: rulestore.Delete, Rule: a})
	b.Enabled = false
	apply(rulestore.Change{Action: rulestore.Update, Rule: b})
	b.Limit = 9
	apply(rulestore.Change{Action: rulestore.Update, Rule: b}, newRule("e"))
	gone := f.create("gone", 1)
	apply(rulestore.Change{Action: rulestore.Delete, Rule: gone})
	same("several changes", 0)
	for i := range 30 {
		f.create(fmt.Sprint("more-", i), 1)
	}
	same("more than a page", 0)

	database, err := sql.Open("sqlite", f.database)
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	run := func(statement string) {
		t.Helper()
		if _, err := database.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run(`UPDATE weir_rules SET enabled = NOT enabled`)
	run(`UPDATE weir_revision SET revision = revision + 1`)
	same("someone wrote past the store", 1)
	run(`UPDATE weir_rules SET enabled = NOT enabled`)
	run(`UPDATE weir_revision SET revision = revision + 1`)
	f.create("after", 1)
	same("someone wrote past the store, and then it wrote too", 1)
	f.create("x", 1)
	f.create("y", 1)
	run(`DELETE FROM weir_audit WHERE seq < (SELECT max(seq) FROM weir_audit)`)
	same("old entries are gone", 1)
	f.create("z", 1)
	run(`UPDATE weir_audit SET after = '{}'`)
	same("an entry cannot be read", 1)
	var many []rulestore.Change
	for i := range 2 * maxChanges {
		many = append(many, newRule(fmt.Sprint("many-", i)))
	}
	apply(many...)
	same("very many", 1)
}

func BenchmarkRefresh(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		f := newFixture(b, annInFile)
		for first := 0; first < n; first += rulestore.MaxChanges {
			var changes []rulestore.Change
			for i := first; i < min(n, first+rulestore.MaxChanges); i++ {
				changes = append(changes, rulestore.Change{Action: rulestore.Create, Rule: rulestore.Rule{
					Scope: "user", IdentifierPattern: fmt.Sprint("user-", i), Limit: 5, WindowSeconds: 60, Algorithm: ratelimit.TokenBucket, Enabled: true,
				}})
			}
			if _, err := f.store.Apply(b.Context(), changes, tester); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("all of %d", n), func(b *testing.B) {
			f.set.Load(b.Context())
			for b.Loop() {
				f.set.store.revision = unread
				if err := f.set.Refresh(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("one of %d", n), func(b *testing.B) {
			f.set.Load(b.Context())
			rule := f.create(fmt.Sprint("one-", time.Now().UnixNano()), 1)
			for b.Loop() {
				b.StopTimer()
				if _, err := f.store.Update(b.Context(), rule, 0, tester); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := f.set.Refresh(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
