package rulestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/rulestore"
	"github.com/weirhq/weir/test/servers"
)

func TestPostgresNotThereAtStart(t *testing.T) {
	server := servers.Postgres(t)
	database := server.Database(t)
	server.Kill()
	store := openPostgres(t, database, rulestore.PostgresOptions{})
	revisions := watch(t, store)
	_, err := store.Create(t.Context(), rule("user", "*"), tester)
	wantErr(t, err, rulestore.ErrUnavailable)
	server.Restart()
	await(t, revisions, 0, 5*time.Second)
	create(t, store, rule("user", "*"))
	await(t, revisions, 1, 2*time.Second)
}

// Under load and over two kills: every error is ErrUnavailable, nothing acknowledged is lost, and a watching replica is
// current within 5 s of the server's return.
func TestPostgresKilledUnderLoad(t *testing.T) {
	const writers, readers = 4, 2
	server := servers.Postgres(t)
	database := server.Database(t)
	writer, replica := openPostgres(t, database, rulestore.PostgresOptions{}), openPostgres(t, database, rulestore.PostgresOptions{})
	revisions := watch(t, replica)
	await(t, revisions, 0, servers.StartTimeout)

	var (
		mu           sync.Mutex
		acknowledged []string
		failed       atomic.Int64
		load         sync.WaitGroup
	)
	written := func() int { mu.Lock(); defer mu.Unlock(); return len(acknowledged) }
	ctx, stop := context.WithCancel(t.Context())
	defer load.Wait()
	defer stop()
	for w := range writers {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r, err := writer.Create(context.WithoutCancel(ctx), rule("user", fmt.Sprintf("%d-%d", w, i)), tester)
				if err == nil {
					mu.Lock()
					acknowledged = append(acknowledged, r.ID)
					mu.Unlock()
					continue
				}
				failed.Add(1)
				if !errors.Is(err, rulestore.ErrUnavailable) {
					t.Errorf("write: %v", err)
				}
				time.Sleep(5 * time.Millisecond) // a polite caller
			}
		})
	}
	for range readers {
		load.Go(func() {
			for ctx.Err() == nil {
				_, _, err := replica.List(context.WithoutCancel(ctx), rulestore.Filter{})
				if err != nil && !errors.Is(err, rulestore.ErrUnavailable) {
					t.Errorf("read: %v", err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for range 2 {
		more := written() + 50
		servers.Eventually(t, "rules are written", func() bool { return written() > more })
		server.Kill()
		before := failed.Load()
		servers.Eventually(t, "writes fail", func() bool { return failed.Load() > before })
		server.Restart()
		back := time.Now()
		r := createEventually(t, writer, rule("service", fmt.Sprint(back.UnixNano())))
		revision, err := writer.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		await(t, revisions, revision, 5*time.Second-time.Since(back))
		t.Logf("current %v after the server's return", time.Since(back).Round(time.Millisecond))
		mu.Lock()
		acknowledged = append(acknowledged, r.ID)
		mu.Unlock()
	}
	stop()
	load.Wait()

	rules, _ := allRules(t, replica)
	ids := make([]string, len(rules))
	for i, r := range rules {
		ids[i] = r.ID
	}
	slices.Sort(ids)
	for _, id := range acknowledged {
		if _, found := slices.BinarySearch(ids, id); !found {
			t.Errorf("rule %s was acknowledged and is lost", id)
		}
	}
	t.Logf("%d writes acknowledged, %d failed, %d rules stored", len(acknowledged), failed.Load(), len(rules))
}

func createEventually(t *testing.T, store rulestore.Store, r rulestore.Rule) (created rulestore.Rule) {
	t.Helper()
	servers.Eventually(t, "a rule can be created", func() (ok bool) {
		var err error
		created, err = store.Create(t.Context(), r, tester)
		if err != nil && !errors.Is(err, rulestore.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	return created
}

// A server that takes connections and does not answer holds up neither calls nor Close.
func TestPostgresPaused(t *testing.T) {
	const timeout = 300 * time.Millisecond
	server := servers.Postgres(t)
	database := server.Database(t)
	options := rulestore.PostgresOptions{Options: rulestore.Options{Timeout: timeout, LoadTimeout: timeout}}
	used, unused := openPostgres(t, database, options), openPostgres(t, database, options)
	revisions := watch(t, used)
	servers.Eventually(t, "the store answers", func() bool { return used.Ping(t.Context()) == nil })
	server.Pause()
	bounded := func(what string, f func() error) {
		began := time.Now()
		err := f()
		wantErr(t, err, rulestore.ErrUnavailable)
		if took := time.Since(began); took > 10*timeout {
			t.Errorf("%s took %v with a timeout of %v", what, took, timeout)
		}
	}
	for i, store := range []rulestore.Store{used, used, unused} {
		bounded("ping", func() error { return store.Ping(t.Context()) })
		bounded("create", func() error { _, err := store.Create(t.Context(), rule("user", fmt.Sprint(i)), tester); return err })
		bounded("list", func() error { _, _, err := store.List(t.Context(), rulestore.Filter{}); return err })
		bounded("all", func() error {
			_, err := store.All(t.Context(), func(*rulestore.Rule) error { return nil })
			return err
		})
	}
	began := time.Now()
	if err := unused.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("close took %v", took)
	}
	server.Resume()
	back := time.Now()
	createEventually(t, used, rule("user", "back"))
	revision, err := used.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	await(t, revisions, revision, 5*time.Second-time.Since(back))
}

// Closing while the server does not answer ends what the driver does in the background: TestMain looks for it.
func TestPostgresPausedAtClose(t *testing.T) {
	server := servers.Postgres(t)
	store := openPostgres(t, server.Database(t), rulestore.PostgresOptions{Options: rulestore.Options{Timeout: 300 * time.Millisecond}})
	servers.Eventually(t, "the store answers", func() bool { return store.Ping(t.Context()) == nil })
	server.Pause()
	defer server.Resume()
	wantErr(t, store.Ping(t.Context()), rulestore.ErrUnavailable, "300ms")
	began := time.Now()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("close took %v", took)
	}
}

// A change whose notification is lost is found by the poll.
func TestPostgresChangeWithoutNotification(t *testing.T) {
	database := servers.Postgres(t).Database(t)
	revisions := watch(t, openPostgres(t, database, rulestore.PostgresOptions{}))
	await(t, revisions, 0, servers.StartTimeout)
	database.Exec(t, `UPDATE weir_revision SET revision = 17`)
	await(t, revisions, 17, 2*time.Second)
}

// With a poll that never comes: a listener whose connection is lost makes it anew, and asks for what it has missed.
func TestPostgresListensAnew(t *testing.T) {
	database := servers.Postgres(t).Database(t)
	store := openPostgres(t, database, rulestore.PostgresOptions{Options: rulestore.Options{PollInterval: time.Hour}})
	revisions := watch(t, store)
	await(t, revisions, 0, servers.StartTimeout)
	create(t, store, rule("user", "before"))
	await(t, revisions, 1, servers.StartTimeout)
	database.Exec(t, `
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%';
		UPDATE weir_revision SET revision = 17`)
	await(t, revisions, 17, servers.StartTimeout)
	database.Exec(t, `UPDATE weir_revision SET revision = 18; NOTIFY weir_rules`)
	await(t, revisions, 18, servers.StartTimeout)
}

func TestPostgresPasswordChanges(t *testing.T) {
	server := servers.Postgres(t)
	database := server.Database(t)
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	database.Exec(t, `CREATE ROLE app LOGIN PASSWORD 'one'; GRANT ALL ON SCHEMA public TO app`)
	store := openPostgres(t, database, rulestore.PostgresOptions{User: "app", Password: rulestore.PasswordFile(file)})
	wantErr(t, store.Ping(t.Context()), rulestore.ErrUnavailable, file) // there is no such file yet
	write("one")
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	database.Exec(t, `
		ALTER ROLE app PASSWORD 'two';
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`)
	write("not-the-password")
	servers.Eventually(t, "a wrong password is refused", func() bool {
		err := store.Ping(t.Context())
		if err != nil && strings.Contains(err.Error(), "not-the-password") {
			t.Fatalf("the password is in the error: %v", err)
		}
		return errors.Is(err, rulestore.ErrUnavailable)
	})
	write("two")
	servers.Eventually(t, "the new password is used", func() bool { return store.Ping(t.Context()) == nil })
}

// A replica needs the right to create tables for the migration only.
func TestPostgresMigratedByAnotherUser(t *testing.T) {
	database := servers.Postgres(t).Database(t)
	database.Exec(t, `CREATE ROLE app LOGIN PASSWORD 'app'`)
	app := openPostgres(t, database, rulestore.PostgresOptions{User: "app", Password: func() (string, error) { return "app", nil }})
	wantErr(t, app.Ping(t.Context()), rulestore.ErrUnavailable, "permission denied")
	create(t, openPostgres(t, database, rulestore.PostgresOptions{}), rule("user", "*"))
	database.Exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app`)
	create(t, app, rule("user", "made by app"))
}

func TestPostgresReplacedByAnEmptyOne(t *testing.T) {
	database := servers.Postgres(t).Database(t)
	store := openPostgres(t, database, rulestore.PostgresOptions{})
	create(t, store, rule("user", "*"))
	database.Exec(t, `DROP TABLE weir_rules, weir_revision, weir_audit, weir_schema`)
	wantErr(t, store.Ping(t.Context()), rulestore.ErrUnavailable)
	if rules, revision := allRules(t, store); len(rules) != 0 || revision != 0 {
		t.Errorf("%d rules at revision %d", len(rules), revision)
	}
}

// A replica that stops in the middle of a write keeps the others from writing for a bounded time only.
func TestPostgresWriterThatStops(t *testing.T) {
	const timeout = 500 * time.Millisecond
	database := servers.Postgres(t).Database(t)
	store := openPostgres(t, database, rulestore.PostgresOptions{Options: rulestore.Options{Timeout: timeout}})
	servers.Eventually(t, "the store answers", func() bool { return store.Ping(t.Context()) == nil })
	release := database.Hold(t, `UPDATE weir_revision SET revision = revision`)
	began := time.Now()
	_, err := store.Create(t.Context(), rule("user", "*"), tester)
	wantErr(t, err, rulestore.ErrUnavailable)
	if took := time.Since(began); took > 10*timeout {
		t.Errorf("waited %v for another writer with a timeout of %v", took, timeout)
	}
	if err := store.Ping(t.Context()); err != nil {
		t.Errorf("reading beside a writer: %v", err)
	}
	release()
	createEventually(t, store, rule("user", "*"))
}
