package servers

import (
	"os"
	"path/filepath"
	"testing"
)

// Root returns the module's folder, so that a test finds the files that weir ships.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for !isFile(filepath.Join(dir, "go.mod")) {
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working directory: run the tests inside the module")
		}
		dir = parent
	}
	return dir
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
