package rules

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/ratelimit"
)

var update = flag.Bool("update", false, "write what the tests get into testdata")

// TestFaults loads each file of testdata/bad, which is named after its fault, and compares all messages.
func TestFaults(t *testing.T) {
	for _, path := range caseFiles(t, "testdata/bad") {
		t.Run(caseName(path), func(t *testing.T) {
			table, err := Load([]string{path}, Options{})
			if err == nil {
				t.Fatalf("loads, with %d rules", table.Len())
			}
			golden(t, path, err.Error()+"\n")
		})
	}
}

// TestWarnings loads each file of testdata/warn, which is valid, and compares the warnings.
func TestWarnings(t *testing.T) {
	for _, path := range caseFiles(t, "testdata/warn") {
		t.Run(caseName(path), func(t *testing.T) {
			table, err := Load([]string{path}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			warnings := table.Warnings()
			if len(warnings) == 0 {
				t.Fatal("no warning")
			}
			for _, w := range warnings {
				if !w.Warning {
					t.Errorf("%v is not marked as a warning", w)
				}
			}
			golden(t, path, warnings.Error()+"\n")
		})
	}
}

// TestGood loads each file of testdata/good without errors and warnings, and compares what it means.
func TestGood(t *testing.T) {
	for _, path := range caseFiles(t, "testdata/good") {
		t.Run(caseName(path), func(t *testing.T) {
			table, err := Load([]string{path}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if warnings := table.Warnings(); len(warnings) > 0 {
				t.Error(warnings)
			}
			golden(t, path, dump(table))
		})
	}
}

// dump writes what rules mean, a line for each rule and each limit.
func dump(table *Table) string {
	var b strings.Builder
	for _, r := range table.Rules() {
		fmt.Fprintf(&b, "%s %s %s\n", r.Domain, r.Path, r.ID)
		field := func(name string, value any, zero bool) {
			if !zero {
				fmt.Fprintf(&b, "\t%s: %v\n", name, value)
			}
		}
		field("name", r.Name, r.Name == "")
		field("action", action(r.Action), r.Action == ratelimit.ActionLimit)
		field("unlimited", r.Unlimited, !r.Unlimited)
		field("shadow", r.Shadow, !r.Shadow)
		field("quota mode", r.QuotaMode, !r.QuotaMode)
		field("disabled", r.Disabled, !r.Disabled)
		field("detailed metric", r.DetailedMetric, !r.DetailedMetric)
		field("replaces", r.Replaces, len(r.Replaces) == 0)
		field("on failure", r.OnFailure, r.OnFailure == ratelimit.FailureDefault)
		field("metadata", r.Metadata, r.Metadata == nil)
		for _, m := range r.Match {
			field("shared at", m.Key, !m.Shared)
			field("value to metric at", m.Key, !m.ValueToMetric)
		}
		for _, l := range r.Limits {
			fmt.Fprintf(&b, "\t%s %d per %s", l.Algorithm, l.Count, l.WindowName())
			if l.Burst != 0 {
				fmt.Fprintf(&b, " burst %d", l.Burst)
			}
			if l.Kind == ratelimit.Quota {
				b.WriteString(" quota")
			}
			if l.Calendar != ratelimit.CalendarNone {
				fmt.Fprintf(&b, " in %v", l.Location)
			}
			if l.Lease != (ratelimit.Lease{}) {
				fmt.Fprintf(&b, " %v", l.Lease)
			}
			if l.Name != "" {
				fmt.Fprintf(&b, " named %s", l.Name)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// caseFiles lists the files and folders of a testdata folder that are cases.
func caseFiles(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, entry := range entries {
		if entry.IsDir() || filepath.Ext(entry.Name()) == ".yaml" {
			paths = append(paths, filepath.Join(folder, entry.Name()))
		}
	}
	if len(paths) == 0 {
		t.Fatalf("no cases in %s", folder)
	}
	return paths
}

func caseName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".yaml") }

// golden compares with the file beside path whose extension is .txt.
func golden(t *testing.T, path, got string) {
	t.Helper()
	file := strings.TrimSuffix(path, ".yaml") + ".txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
