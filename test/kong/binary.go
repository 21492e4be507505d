package kong

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/weirhq/weir/test/servers"
)

// Name is the plugin's.
const Name = "weir-ratelimit"

var built struct {
	once sync.Once
	path string
	err  error
}

// Binary returns the path of the plugin's binary, which it brings up to date once per test process: with the race detector if
// the tests have it.
func Binary(t testing.TB) string {
	t.Helper()
	root := servers.Root(t)
	built.once.Do(func() { built.path, built.err = build(root) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func build(root string) (string, error) {
	// Named as the plugin, in a folder of its own: the name is part of what Kong relies on.
	dir := filepath.Join(root, "build", "test", "kong")
	if RaceEnabled {
		dir += "-race"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(dir, "lock")).Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(dir, Name)
	args := []string{"build"}
	if RaceEnabled {
		args = append(args, "-race")
	}
	command := exec.Command("go", append(args, "-o", path, "./kongplugin")...) //nolint:noctx // shared by tests, so none's context fits
	command.Dir = root
	if log, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", Name, err, log)
	}
	return path, nil
}
