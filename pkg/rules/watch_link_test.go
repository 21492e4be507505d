package rules

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// swap makes the link at path lead to target in one step, as deployments do.
func swap(t *testing.T, path, target string) {
	t.Helper()
	next := path + ".next"
	must(t, os.Symlink(target, next))
	must(t, os.Rename(next, path))
}

// release writes the rules of one release, below ROOT/versions/N/SUBDIRECTORY/config.
func release(t *testing.T, root string, n int, below string) string {
	t.Helper()
	folder := filepath.Join(root, "versions", strconv.Itoa(n))
	must(t, os.MkdirAll(filepath.Join(folder, below), 0o755))
	write(t, filepath.Join(folder, below, "edge.yaml"), ruleText(n))
	return folder
}

// A link above the rules is swapped: RUNTIME_ROOT of envoyproxy/ratelimit, current of Capistrano.
func TestWatcherSwappedParentLink(t *testing.T) {
	const below = "ratelimit/config"
	root := t.TempDir()
	current := filepath.Join(root, "current")
	must(t, os.Symlink(release(t, root, 1, below), current))
	w := watch(t, 0, filepath.Join(current, below))
	w.until(1)
	for n := 2; n <= 5; n++ {
		swap(t, current, release(t, root, n, below))
		w.until(int64(n))
	}
	// A file of the release that counts now is seen too, and one of a release that has been left is not missed.
	write(t, filepath.Join(root, "versions", "5", below, "edge.yaml"), ruleText(50))
	w.until(50)
	must(t, os.RemoveAll(filepath.Join(root, "versions", "1")))
	swap(t, current, filepath.Join(root, "versions", "2"))
	w.until(2)
}

// Links lead to links, relative ones too, and each may be swapped.
func TestWatcherSwappedLinkOfALink(t *testing.T) {
	root := t.TempDir()
	release(t, root, 1, "config")
	release(t, root, 2, "config")
	release(t, root, 3, "config")
	stable, current := filepath.Join(root, "stable"), filepath.Join(root, "current")
	must(t, os.Symlink(filepath.Join("versions", "1"), stable))
	must(t, os.Symlink("stable", current))
	w := watch(t, 0, filepath.Join(current, "config"))
	w.until(1)
	swap(t, stable, filepath.Join("versions", "2"))
	w.until(2)
	swap(t, current, filepath.Join("versions", "3"))
	w.until(3)
	swap(t, current, "stable")
	w.until(2)
}

// A link that leads nowhere keeps the rules; once it leads somewhere again they count.
func TestWatcherDanglingParentLink(t *testing.T) {
	root := t.TempDir()
	current := filepath.Join(root, "current")
	must(t, os.Symlink(release(t, root, 1, "config"), current))
	w := watch(t, 0, filepath.Join(current, "config"))
	w.until(1)
	swap(t, current, filepath.Join(root, "versions", "2"))
	_ = w.error("no such file")
	release(t, root, 2, "config")
	w.until(2)
}
