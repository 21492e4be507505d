package rulestore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

//go:embed migrations
var migrationFiles embed.FS

// migrationTimeout bounds an attempt to migrate, the wait for another replica's included.
const migrationTimeout = 5 * time.Minute

// migration brings the schema up to date once, when the database first answers.
type migration struct {
	mu      sync.Mutex
	done    bool
	closed  bool
	attempt *attempt // the one that runs now
	running sync.WaitGroup
}

type attempt struct {
	ended chan struct{}
	err   error // may be read once ended is closed
}

// ready returns nil once the schema is the one that this version knows. An attempt to get there is shared by all callers
// and goes on when they have given up: a long migration must not start anew with each of them.
func (d *database) ready(ctx context.Context) error {
	m := &d.migration
	m.mu.Lock()
	if m.done || m.closed {
		defer m.mu.Unlock()
		if m.closed {
			return errClosed
		}
		return nil
	}
	current := m.attempt
	if current == nil {
		current = &attempt{ended: make(chan struct{})}
		m.attempt = current
		m.running.Go(func() {
			bounded, cancel := context.WithTimeout(d.alive, migrationTimeout)
			defer cancel()
			err := d.migrate(bounded)
			m.mu.Lock()
			current.err, m.done, m.attempt = err, err == nil, nil
			m.mu.Unlock()
			close(current.ended)
		})
	}
	m.mu.Unlock()

	select {
	case <-current.ended:
		return current.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forget lets the next call migrate again: the database has been replaced by an empty one.
func (m *migration) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done = false
}

// wait refuses further attempts and returns when the last one has ended.
func (m *migration) wait() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.running.Wait()
}

// migrate runs the migrations that the database has not seen, all in one transaction under a lock, so that of several
// replicas one migrates and the others find it done.
func (d *database) migrate(ctx context.Context) error {
	scripts, err := fs.Glob(d.migrations, "*.sql") // sorted; the n-th leads to version n
	if err != nil {
		return err
	}
	if d.prepare != nil {
		if err := d.prepare(ctx); err != nil {
			return err
		}
	}
	// Looked at first without the lock and without the right to create tables, which a replica needs only for migrating.
	soon, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	if version, err := d.schemaVersion(soon, d.writer); err != nil || version == len(scripts) {
		return err
	} else if version > len(scripts) {
		return tooNew(version, len(scripts))
	}

	tx, err := d.writer.BeginTx(ctx, d.begin)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // without effect after Commit, and otherwise there is an error to return already
	if d.lockSchema != "" {
		if _, err := tx.ExecContext(ctx, d.lockSchema); err != nil {
			return err
		}
	}
	from, err := d.schemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	switch {
	case from > len(scripts):
		return tooNew(from, len(scripts))
	case from == len(scripts):
		return nil
	case from == 0:
		if _, err := tx.ExecContext(ctx, `CREATE TABLE weir_schema (version INTEGER NOT NULL)`); err != nil {
			return err
		}
	}
	for i := from; i < len(scripts); i++ {
		script, err := fs.ReadFile(d.migrations, scripts[i])
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, string(script)); err != nil {
			return fmt.Errorf("migration %s: %w", scripts[i], err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO weir_schema (version) VALUES ($1)`, i+1); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	d.Logger.InfoContext(ctx, "rule store migrated", "from_version", from, "to_version", len(scripts))
	return nil
}

// schemaVersion returns how many migrations the database has seen.
func (d *database) schemaVersion(ctx context.Context, on interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
},
) (version int, err error) {
	var exists bool
	if err := on.QueryRowContext(ctx, d.hasSchema).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = on.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM weir_schema`).Scan(&version)
	return version, err
}

func tooNew(version, known int) error {
	return fmt.Errorf("%w: %w: its schema has version %d and this weir knows versions up to %d: run a newer weir, or give this one a database of its own",
		ErrUnavailable, ErrNewer, version, known)
}
