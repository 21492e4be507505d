package rulestore

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Faults that can only be made from inside, on SQLite.

func openForFaults(t *testing.T) *database {
	t.Helper()
	store, err := OpenSQLite(SQLiteOptions{
		Options: Options{Logger: slog.New(slog.DiscardHandler)},
		Path:    filepath.Join(t.TempDir(), "rules.db"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store.(*database)
}

func (d *database) mustExec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := d.writer.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (d *database) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := d.reader.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func sample(pattern string) Rule {
	return Rule{Scope: "user", IdentifierPattern: pattern, Limit: 1, WindowSeconds: 1, Algorithm: ratelimit.TokenBucket}
}

var tester = Actor{Subject: "tester"}

func TestFullDiskIsUnavailableAndChangesNothing(t *testing.T) {
	d := openForFaults(t)
	var pages int
	if err := d.writer.QueryRowContext(t.Context(), `PRAGMA page_count`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if err := d.writer.QueryRowContext(t.Context(), `PRAGMA max_page_count = 30`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	var full error
	stored := 0
	for full == nil {
		_, full = d.Create(t.Context(), sample(strings.Repeat("p", 1000)+string(rune('a'+stored))), tester)
		if full == nil {
			stored++
		}
	}
	if !errors.Is(full, ErrUnavailable) || !strings.Contains(full.Error(), "space") {
		t.Errorf("error %v does not say that the disk is full", full)
	}
	if rules, entries := d.count(t, "weir_rules"), d.count(t, "weir_audit"); rules != stored || entries != stored {
		t.Errorf("%d rules and %d audit entries, want %d", rules, entries, stored)
	}
	if revision, err := d.Revision(t.Context()); err != nil || revision != int64(stored) {
		t.Errorf("revision %d (%v), want %d", revision, err, stored)
	}
	if err := d.writer.QueryRowContext(t.Context(), `PRAGMA max_page_count = 100000`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), sample("there is room again"), tester); err != nil {
		t.Error(err)
	}
}

func TestNoChangeWithoutItsAuditEntry(t *testing.T) {
	d := openForFaults(t)
	kept, err := d.Create(t.Context(), sample("kept"), tester)
	if err != nil {
		t.Fatal(err)
	}
	d.mustExec(t, `CREATE TRIGGER refuse BEFORE INSERT ON weir_audit BEGIN SELECT raise(ABORT, 'no more entries'); END`)
	if _, err := d.Create(t.Context(), sample("new"), tester); err == nil {
		t.Error("a creation without an audit entry")
	}
	if _, err := d.Update(t.Context(), kept, 0, tester); err == nil {
		t.Error("an update without an audit entry")
	}
	if err := d.Delete(t.Context(), kept.ID, 0, tester); err == nil {
		t.Error("a delete without an audit entry")
	}
	if got, err := d.Get(t.Context(), kept.ID); err != nil || got != kept {
		t.Errorf("%+v, %v", got, err)
	}
	if revision, err := d.Revision(t.Context()); err != nil || revision != 1 {
		t.Errorf("revision %d (%v), want 1", revision, err)
	}
}

func TestCorruptRuleIsNamedAndCanBeRemoved(t *testing.T) {
	for _, stored := range []string{
		`{}`, `{"limit":"many"}`, `{"limit":0,"window_seconds":1,"algorithm":"token_bucket"}`,
		`{"limit":1,"window_seconds":1,"algorithm":"dice"}`,
	} {
		d := openForFaults(t)
		good, err := d.Create(t.Context(), sample("good"), tester)
		if err != nil {
			t.Fatal(err)
		}
		bad, err := d.Create(t.Context(), sample("bad"), tester)
		if err != nil {
			t.Fatal(err)
		}
		d.mustExec(t, `UPDATE weir_rules SET body = ? WHERE id = ?`, stored, bad.ID)

		_, getErr := d.Get(t.Context(), bad.ID)
		_, _, listErr := d.List(t.Context(), Filter{})
		var read []string
		revision, allErr := d.All(t.Context(), func(r *Rule) error { read = append(read, r.ID); return nil })
		if revision != 2 || !slices.Equal(read, []string{good.ID}) {
			t.Errorf("%s: All reads %v at revision %d, want the good rule at 2", stored, read, revision)
		}
		for _, err := range []error{getErr, listErr, allErr} {
			if !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), bad.ID) {
				t.Errorf("%s: error %v", stored, err)
			}
		}
		if _, err := d.Update(t.Context(), bad, bad.Version, tester); err != nil {
			t.Errorf("%s: write anew: %v", stored, err)
		}
		d.mustExec(t, `UPDATE weir_rules SET body = ? WHERE id = ?`, stored, bad.ID)
		if err := d.Delete(t.Context(), bad.ID, 0, tester); err != nil {
			t.Errorf("%s: delete: %v", stored, err)
		}
		if rules, total, err := d.List(t.Context(), Filter{}); err != nil || total != 1 || rules[0] != good {
			t.Errorf("%s: left %+v (%v)", stored, rules, err)
		}
	}
}

func TestUnknownFieldsOfALaterVersionAreLeftOut(t *testing.T) {
	d := openForFaults(t)
	r, err := d.Create(t.Context(), sample("a"), tester)
	if err != nil {
		t.Fatal(err)
	}
	d.mustExec(t, `UPDATE weir_rules SET body = json_set(body, '$.colour', 'blue')`)
	if got, err := d.Get(t.Context(), r.ID); err != nil || got != r {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	d := openForFaults(t)
	d.mustExec(t, `INSERT INTO weir_schema (version) VALUES (999)`)
	d.migration.forget()
	err := d.Ping(t.Context())
	if !errors.Is(err, ErrNewer) || !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "999") {
		t.Errorf("error %v", err)
	}
	d.mustExec(t, `DELETE FROM weir_schema WHERE version = 999`)
	if err := d.Ping(t.Context()); err != nil {
		t.Errorf("once it is gone: %v", err)
	}
}

func TestAuditEntryThatIsNoRule(t *testing.T) {
	for _, after := range []string{
		`{`, `{}`, `{"algorithm":"dice"}`, `{"algorithm":"token_bucket","created_at":"yesterday"}`,
		`{"algorithm":"token_bucket","created_at":"2030-01-01T12:00:00.000Z","updated_at":"2030-01-01T12:00:00.000Z","limit":0}`,
	} {
		entry := AuditEntry{Seq: 7, After: []byte(after)}
		if rule, err := entry.Rule(); !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrInvalid) || rule != nil {
			t.Errorf("%s: %+v, %v", after, rule, err)
		}
	}
}
