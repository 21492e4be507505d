package rulestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir/pkg/rulestore"
)

// With childEnv set to a database's path the test binary is a process that makes rules there until it is told to stop,
// and writes the ID of each to its standard output once the store has acknowledged it.
const childEnv = "WEIR_RULESTORE_CHILD"

func child(path string) int {
	store, err := rulestore.OpenSQLite(rulestore.SQLiteOptions{Path: path})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer store.Close()
	count := -1
	if text := os.Getenv(childEnv + "_COUNT"); text != "" {
		if _, err := fmt.Sscan(text, &count); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	for i := 0; i != count; i++ {
		r, err := store.Create(context.Background(), rule("user", fmt.Sprintf("%d-%d", os.Getpid(), i)), tester)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(r.ID)
	}
	return 0
}

func startChild(t *testing.T, path, count string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+path, childEnv+"_COUNT="+count)
	return cmd
}

func TestSQLiteOpenedByManyProcesses(t *testing.T) {
	const processes, each = 8, 5
	path := filepath.Join(t.TempDir(), "rules.db")
	var wg sync.WaitGroup
	for range processes {
		cmd := startChild(t, path, fmt.Sprint(each))
		wg.Go(func() {
			if output, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
	wg.Wait()
	rules, revision := allRules(t, openSQLite(t, path, rulestore.Options{}))
	if len(rules) != processes*each || revision != processes*each {
		t.Errorf("%d rules at revision %d, want %d", len(rules), revision, processes*each)
	}
}

func TestSQLiteKeepsWhatAKilledProcessWasToldIsStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	cmd := startChild(t, path, "-1")
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var acknowledged []string
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		acknowledged = append(acknowledged, lines.Text())
		if len(acknowledged) == 30 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process was not killed")
	}
	if len(acknowledged) < 30 {
		t.Fatalf("only %d acknowledged", len(acknowledged))
	}
	rules, revision := allRules(t, openSQLite(t, path, rulestore.Options{}))
	if int64(len(rules)) != revision {
		t.Errorf("%d rules at revision %d", len(rules), revision)
	}
	for _, id := range acknowledged {
		if !slices.ContainsFunc(rules, func(r rulestore.Rule) bool { return r.ID == id }) {
			t.Errorf("rule %s is lost", id)
		}
	}
}

func TestSQLiteFilesArePrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "rules.db")
	store := openSQLite(t, path, rulestore.Options{})
	create(t, store, rule("user", "*"))
	for name, want := range map[string]os.FileMode{
		filepath.Dir(path): 0o700 | os.ModeDir, path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Error(err)
		} else if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}

	open := filepath.Join(t.TempDir(), "open.db")
	if err := os.WriteFile(open, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := openSQLite(t, open, rulestore.Options{}).Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(open); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
}

func TestSQLiteThatCannotBeOpenedIsUnavailableUntilItCan(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(folder, []byte("a file in the place of the folder"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "rules.db")
	store := openSQLite(t, path, rulestore.Options{})
	_, err := store.Create(t.Context(), rule("user", "*"), tester)
	wantErr(t, err, rulestore.ErrUnavailable, folder)
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	create(t, store, rule("user", "*"))

	other := filepath.Join(t.TempDir(), "other.db")
	if err := os.WriteFile(other, []byte(strings.Repeat("this is no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantErr(t, openSQLite(t, other, rulestore.Options{}).Ping(t.Context()), rulestore.ErrUnavailable, "not a database")
}

func TestOptionsAreChecked(t *testing.T) {
	_, noPath := rulestore.OpenSQLite(rulestore.SQLiteOptions{})
	_, negative := rulestore.OpenSQLite(rulestore.SQLiteOptions{Path: "x", Options: rulestore.Options{Timeout: -1}})
	_, sslMode := rulestore.OpenPostgres(rulestore.PostgresOptions{Host: "localhost", SSLMode: "perhaps"})
	_, connections := rulestore.OpenPostgres(rulestore.PostgresOptions{MaxOpenConns: -1})
	for _, err := range []error{noPath, negative, sslMode, connections} {
		if !errors.Is(err, rulestore.ErrInvalid) {
			t.Errorf("error %v, want one that is ErrInvalid", err)
		}
	}
}
