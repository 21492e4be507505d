package auth

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// writeAtomically replaces a file as editors and tools do.
func writeAtomically(t *testing.T, path, text string) {
	t.Helper()
	part := path + ".part"
	if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part, path); err != nil {
		t.Fatal(err)
	}
}

func TestTokenFileFollowsChanges(t *testing.T) {
	var logs bytes.Buffer
	clock, path := newStepClock(), filepath.Join(t.TempDir(), "tokens.yaml")
	const alice, bob = "token-of-alice", "token-of-bob"
	writeAtomically(t, path, "tokens:\n"+line("alice", "sys_admin", alice, ""))
	file, err := openTokenFile(path, clock.Now, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	knows := func(token string, want bool) {
		t.Helper()
		if _, ok := file.find(t.Context(), token); ok != want {
			t.Errorf("%s is known: %v", token, ok)
		}
	}
	knows(alice, true)
	knows(bob, false)

	writeAtomically(t, path, "tokens:\n"+line("bob", "sys_admin", bob, ""))
	knows(bob, false) // not looked at again so soon
	clock.Step(recheckInterval)
	knows(bob, true)
	knows(alice, false)
	if got := logs.String(); strings.Count(got, "read again") != 1 {
		t.Errorf("log: %s", got)
	}

	logs.Reset()
	writeAtomically(t, path, "tokens: [{subject: eve, role: root}]")
	for range 3 {
		clock.Step(recheckInterval)
		knows(bob, true)
	}
	if got := logs.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "unknown role") {
		t.Errorf("log of a bad file: %s", got)
	}

	logs.Reset()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		clock.Step(recheckInterval)
		knows(bob, true)
	}
	if got := logs.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "no such file") {
		t.Errorf("log of a removed file: %s", got)
	}

	logs.Reset()
	writeAtomically(t, path, "tokens: []")
	clock.Step(recheckInterval)
	knows(bob, false)

	clock.Step(-time.Hour) // a clock that is set back does not stop it
	writeAtomically(t, path, "tokens:\n"+line("alice", "sys_admin", alice, ""))
	knows(alice, true)
	for _, secret := range []string{alice, bob, hashOf(alice), hashOf(bob)} {
		if strings.Contains(logs.String(), secret) {
			t.Errorf("the log shows %s", secret)
		}
	}
}

// TestTokenFileFollowsSecret: Kubernetes writes a new folder and then swaps a symbolic link.
func TestTokenFileFollowsSecret(t *testing.T) {
	clock, dir := newStepClock(), t.TempDir()
	mount := func(version, text string) {
		t.Helper()
		folder := filepath.Join(dir, version)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "tokens.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	mount("..1", "tokens:\n"+line("a", "sys_admin", "token-1", ""))
	path := filepath.Join(dir, "tokens.yaml")
	if err := os.Symlink(filepath.Join("..data", "tokens.yaml"), path); err != nil {
		t.Fatal(err)
	}
	file, err := openTokenFile(path, clock.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	mount("..2", "tokens:\n"+line("a", "sys_admin", "token-2", ""))
	clock.Step(recheckInterval)
	if _, ok := file.find(t.Context(), "token-2"); !ok {
		t.Error("the new secret is not in use")
	}
	if _, ok := file.find(t.Context(), "token-1"); ok {
		t.Error("the old secret is still in use")
	}
}

func TestTokenFileUnderLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	both := line("always", "sys_admin", "token-always", "")
	writeAtomically(t, path, "tokens:\n"+both)
	clock := newStepClock()
	file, err := openTokenFile(path, clock.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 500 {
				if _, ok := file.find(t.Context(), "token-always"); !ok {
					t.Error("a token that is always listed was refused")
					return
				}
			}
		})
	}
	for i := range 20 {
		text := "tokens:\n" + both
		if i%2 == 0 {
			text += line("sometimes", "sys_auditor", "token-sometimes", "")
		}
		writeAtomically(t, path, text)
		clock.Step(recheckInterval)
	}
	wait.Wait()
}

func TestTokenFileTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	writeAtomically(t, path, "tokens: []\n#"+strings.Repeat("x", maxTokenFile))
	if _, err := openTokenFile(path, time.Now, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
}
