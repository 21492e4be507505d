package rules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// patience is how long a test waits for what must happen; far more than it takes.
const patience = 20 * time.Second

// watching is a running Watcher and what it reported.
type watching struct {
	*Watcher
	t      *testing.T
	loads  chan *Table
	errors chan error
}

// watch runs a watcher without polling, so that only events count, unless poll is set.
func watch(t *testing.T, poll time.Duration, paths ...string) *watching {
	t.Helper()
	if poll == 0 {
		poll = time.Hour
	}
	w := &watching{t: t, loads: make(chan *Table, 10_000), errors: make(chan error, 10_000)}
	w.Watcher = NewWatcher(paths, Options{}, WatcherOptions{
		Poll:    poll,
		OnLoad:  func(table *Table) { w.loads <- table },
		OnError: func(err error) { w.errors <- err },
	})
	ctx, cancel := context.WithCancel(t.Context())
	before := goleak.IgnoreCurrent()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		goleak.VerifyNone(t, before)
	})
	return w
}

// until waits for a table whose rule for user has this limit. Tables before it may have another.
func (w *watching) until(limit int64) {
	w.t.Helper()
	deadline := time.After(patience)
	var last int64 = -1
	for {
		select {
		case table := <-w.loads:
			if last = limitOf(table); last == limit {
				return
			}
		case <-deadline:
			w.t.Fatalf("no table with limit %d; the last one had %d", limit, last)
		}
	}
}

// error waits for a load that fails with this text. Others before it are left out: a file that is written in place may be seen
// before it is complete.
func (w *watching) error(text string) error {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case err := <-w.errors:
			if strings.Contains(err.Error(), text) {
				return err
			}
		case <-deadline:
			w.t.Fatalf("no error with %q", text)
			return nil
		}
	}
}

func limitOf(table *Table) int64 {
	m := table.Match("edge", []ratelimit.Entry{{Key: "user", Value: "bob"}})
	if m.Rule == nil || len(m.Rule.Limits) == 0 {
		return -1
	}
	return m.Rule.Limits[0].Count
}

func ruleText(limit int) string {
	return fmt.Sprintf("domain: edge\ndescriptors:\n  - key: user\n    limits: [{limit: %d, window: 1m}]\n", limit)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatcherConfigMap(t *testing.T) {
	// What the kubelet does, step by step.
	mount := t.TempDir()
	version := 0
	publish := func(limit int) {
		version++
		folder := fmt.Sprintf("..2026_01_01_00_00_00.%d", version)
		must(t, os.Mkdir(filepath.Join(mount, folder), 0o750))
		write(t, filepath.Join(mount, folder, "edge.yaml"), ruleText(limit))
		must(t, os.Symlink(folder, filepath.Join(mount, "..data_tmp")))
		old, _ := os.Readlink(filepath.Join(mount, "..data"))
		must(t, os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")))
		if old != "" {
			must(t, os.RemoveAll(filepath.Join(mount, old)))
		}
	}
	publish(1)
	must(t, os.Symlink("..data/edge.yaml", filepath.Join(mount, "edge.yaml")))
	for _, path := range []string{mount, filepath.Join(mount, "edge.yaml")} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			w := watch(t, 0, path)
			w.until(1)
			publish(2)
			w.until(2)
			publish(3)
			w.until(3)
			publish(1)
			w.until(1)
			if len(w.errors) > 0 {
				t.Error(<-w.errors)
			}
		})
	}
}

// TestWatcherSwappedRoot swaps a symbolic link above the folder, as RUNTIME_ROOT users do.
func TestWatcherSwappedRoot(t *testing.T) {
	root := t.TempDir()
	for i := 1; i <= 3; i++ {
		folder := filepath.Join(root, "releases", fmt.Sprint(i), "ratelimit", "config")
		must(t, os.MkdirAll(folder, 0o750))
		write(t, filepath.Join(folder, "edge.yaml"), ruleText(i))
	}
	point := func(i int) {
		must(t, os.Symlink(filepath.Join("releases", fmt.Sprint(i)), filepath.Join(root, "next")))
		must(t, os.Rename(filepath.Join(root, "next"), filepath.Join(root, "current")))
	}
	point(1)
	w := watch(t, 0, filepath.Join(root, "current", "ratelimit", "config"))
	w.until(1)
	point(2)
	w.until(2)
	write(t, filepath.Join(root, "releases", "2", "ratelimit", "config", "edge.yaml"), ruleText(22))
	w.until(22)
	point(3)
	w.until(3)
}

func TestWatcherEditors(t *testing.T) {
	for name, edit := range map[string]func(t *testing.T, path, text string){
		"write in place": write,
		"rename over": func(t *testing.T, path, text string) {
			write(t, path+".new", text)
			must(t, os.Rename(path+".new", path))
		},
		"backup first": func(t *testing.T, path, text string) {
			folder := filepath.Dir(path)
			write(t, filepath.Join(folder, ".edge.yaml.swp"), "swap")
			write(t, filepath.Join(folder, "4913"), "")
			must(t, os.Remove(filepath.Join(folder, "4913")))
			must(t, os.Rename(path, path+"~"))
			write(t, path, text)
			must(t, os.Remove(path+"~"))
			must(t, os.Remove(filepath.Join(folder, ".edge.yaml.swp")))
		},
	} {
		for _, watchFile := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/file=%v", name, watchFile), func(t *testing.T) {
				folder := t.TempDir()
				path := filepath.Join(folder, "edge.yaml")
				write(t, path, ruleText(1))
				watched := folder
				if watchFile {
					watched = path
				}
				w := watch(t, 0, watched)
				w.until(1)
				for limit := 2; limit < 5; limit++ {
					edit(t, path, ruleText(limit))
					w.until(int64(limit))
				}
				if name == "rename over" && len(w.errors) > 0 { // the others leave a gap
					t.Error(<-w.errors)
				}
			})
		}
	}
}

func TestWatcherNewAndDeletedFiles(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "base.yaml"), "domain: base\n")
	w := watch(t, 0, folder)
	w.until(-1)
	write(t, filepath.Join(folder, "edge.yaml"), ruleText(1))
	w.until(1)
	must(t, os.Remove(filepath.Join(folder, "edge.yaml")))
	w.until(-1)
	// A folder that did not exist, with a file that comes later.
	below := filepath.Join(folder, "team", "blue")
	must(t, os.MkdirAll(below, 0o750))
	write(t, filepath.Join(below, "edge.yaml"), ruleText(2))
	w.until(2)
	write(t, filepath.Join(below, "edge.yaml"), ruleText(3))
	w.until(3)
	must(t, os.RemoveAll(filepath.Join(folder, "team")))
	w.until(-1)
}

func TestWatcherKeepsTheRulesWhenAllFilesAreGone(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "edge.yaml")
	write(t, path, ruleText(1))
	w := watch(t, 0, folder)
	w.until(1)
	must(t, os.Remove(path))
	if err := w.error("no rules"); !errors.Is(err, ErrNoRules) {
		t.Errorf("got %v", err)
	}
	if len(w.loads) > 0 {
		t.Error("a table without rules was loaded")
	}
}

func TestWatcherFolderDeletedAndMadeAgain(t *testing.T) {
	parent := t.TempDir()
	folder := filepath.Join(parent, "rules")
	must(t, os.Mkdir(folder, 0o750))
	write(t, filepath.Join(folder, "edge.yaml"), ruleText(1))
	w := watch(t, 0, folder)
	w.until(1)
	must(t, os.RemoveAll(folder))
	_ = w.error("cannot be read")
	must(t, os.Mkdir(folder, 0o750))
	write(t, filepath.Join(folder, "edge.yaml"), ruleText(2))
	w.until(2)
	// Moved away, and another one put in its place.
	next := filepath.Join(parent, "next")
	must(t, os.Mkdir(next, 0o750))
	write(t, filepath.Join(next, "edge.yaml"), ruleText(3))
	must(t, os.Rename(folder, filepath.Join(parent, "old")))
	must(t, os.Rename(next, folder))
	w.until(3)
	write(t, filepath.Join(folder, "edge.yaml"), ruleText(4))
	w.until(4)
}

func TestWatcherPathThatDoesNotExistYet(t *testing.T) {
	parent := t.TempDir()
	w := watch(t, 0, filepath.Join(parent, "etc", "weir", "rules.yaml"))
	if err := w.error("cannot be read"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(parent, "etc", "weir"), 0o750))
	write(t, filepath.Join(parent, "etc", "weir", "rules.yaml"), ruleText(1))
	w.until(1)
}

func TestWatcherBrokenAndHalfWrittenFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	write(t, path, ruleText(1))
	w := watch(t, 0, path)
	w.until(1)
	for broken, message := range map[string]string{
		ruleText(2)[:50]:                 "not valid YAML",
		"":                               "holds no rules",
		"domain: edge\ndescriptor: []\n": "unknown key",
	} {
		write(t, path, broken)
		err := w.error(message)
		if problems := Problems(nil); !errors.As(err, &problems) || problems[0].File != path {
			t.Errorf("got %v", err)
		}
		if len(w.loads) > 0 {
			t.Fatalf("%q was loaded", broken)
		}
	}
	write(t, path, ruleText(2))
	w.until(2)
	write(t, path, "nonsense")
	_ = w.error("nonsense")
	write(t, path, ruleText(2)) // back to what is in use: a good load again
	w.until(2)
}

func TestWatcherManyWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	write(t, path, ruleText(0))
	w := watch(t, 0, path)
	w.until(0)
	started := time.Now()
	for limit := 1; limit <= 100; limit++ {
		write(t, path+".tmp", ruleText(limit))
		must(t, os.Rename(path+".tmp", path))
	}
	took := time.Since(started)
	loads := 0
	for last := int64(-1); last != 100; loads++ {
		select {
		case table := <-w.loads:
			last = limitOf(table)
		case <-time.After(patience):
			t.Fatalf("the last table has limit %d", last)
		}
	}
	// A load begins at least 100 ms after the first event that it covers.
	if most := 2 + int(took/defaultDebounce); loads > most {
		t.Errorf("%d loads for 100 writes in %v, more than %d", loads, took, most)
	}
	if len(w.errors) > 0 {
		t.Error(<-w.errors)
	}
}

func TestWatcherPolls(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "edge.yaml")
	write(t, path, ruleText(1))
	w := watch(t, 10*time.Millisecond, folder)
	w.until(1)
	write(t, path, ruleText(2))
	w.until(2)
}

func TestWatcherReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	write(t, path, ruleText(1))
	w := watch(t, 0, path)
	w.until(1)
	w.Reload()
	w.until(1) // though nothing has changed
}

func TestWatcherRunLeavesOutWhatLoadReturned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	write(t, path, ruleText(1))
	loads := make(chan *Table, 10)
	w := NewWatcher([]string{path}, Options{}, WatcherOptions{OnLoad: func(table *Table) { loads <- table }})
	table, err := w.Load()
	if err != nil || limitOf(table) != 1 {
		t.Fatalf("%v", err)
	}
	write(t, path, ruleText(2)) // between Load and Run
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	if got := limitOf(<-loads); got != 2 {
		t.Errorf("the first table of Run has limit %d", got)
	}
	cancel()
	<-done
}

func TestWatcherIgnoresOtherFilesInABusyFolder(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "edge.yaml")
	write(t, path, ruleText(1))
	s := scopeOf([]string{path})
	if s.holds(filepath.Join(folder, "other.log")) {
		t.Error("another file beside the rule file counts")
	}
	if !s.holds(path) {
		t.Error("the rule file does not count")
	}
	if s := scopeOf([]string{folder}); !s.holds(filepath.Join(folder, "..data")) {
		t.Error("a name in a rule folder does not count")
	}
}

func TestScopeIsBounded(t *testing.T) {
	folder := t.TempDir()
	must(t, os.Symlink(".", filepath.Join(folder, "loop")))
	must(t, os.Symlink("self", filepath.Join(folder, "self")))
	must(t, os.Symlink("nowhere", filepath.Join(folder, "dangling.txt")))
	if s := scopeOf([]string{folder}); len(s) > 10 {
		t.Errorf("%d folders for one", len(s))
	}
	// Reading ends too, and says why.
	write(t, filepath.Join(folder, "edge.yaml"), ruleText(1))
	_, err := Load([]string{folder}, Options{})
	if err == nil || !strings.Contains(err.Error(), "deeper than") {
		t.Errorf("got %v", err)
	}
}

func TestSettled(t *testing.T) {
	before, after := []file{{"a", []byte("1")}, {"b", []byte("1")}}, []file{{"a", []byte("2")}, {"b", []byte("2")}}
	half := []file{before[0], after[1]}
	reads := 0
	sequence := func(all ...[]file) func() ([]file, Problems) {
		reads = 0
		return func() ([]file, Problems) {
			reads++
			return all[min(reads, len(all))-1], nil
		}
	}
	if files, _ := settled(sequence(before)); reads != 2 || string(files[0].data) != "1" {
		t.Errorf("%d reads, %v", reads, files)
	}
	if files, _ := settled(sequence(half, after)); reads != 3 || string(files[0].data) != "2" {
		t.Errorf("%d reads, %v", reads, files)
	}
	if _, _ = settled(sequence(before, after, before, after, before, after, before)); reads != maxReads {
		t.Errorf("%d reads of files that never settle", reads)
	}
}
