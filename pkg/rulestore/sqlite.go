package rulestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLiteOptions say where the file is.
type SQLiteOptions struct {
	Options
	// Path is the database's file. It and its folder are made if missing, for this user alone. Two more files beside it,
	// -wal and -shm, belong to it. It must not lie on a network file system, whose locks cannot be relied on.
	Path string
}

const (
	// busyTimeout is how long a writer waits for one in another process; the end of its context ends that too.
	busyTimeout = 5 * time.Second
	// sqliteReaders is how many connections read at the same time.
	sqliteReaders = 4
	// maxLogSize is what is left of the write-ahead log after it has been copied into the file.
	maxLogSize = 16 << 20
)

// OpenSQLite returns a store in a file. Several processes of one machine may open the same file. A write is on the disk
// when it returns. The error is about the options: the file is opened with the first call.
func OpenSQLite(options SQLiteOptions) (Store, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	if options.Path == "" {
		return nil, fmt.Errorf("%w: rule store: the path of the SQLite file is empty: write one", ErrInvalid)
	}
	path, err := filepath.Abs(options.Path)
	if err != nil {
		return nil, fmt.Errorf("rule store: path %q: %w", options.Path, err)
	}
	migrations, err := fs.Sub(migrationFiles, "migrations/sqlite")
	if err != nil {
		return nil, err
	}
	pragmas := []string{
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"synchronous(FULL)",
		"foreign_keys(ON)",
		"trusted_schema(OFF)",
		fmt.Sprintf("journal_size_limit(%d)", maxLogSize),
	}
	// Immediate: a transaction that means to write takes the lock at once, and does not find out at its end that it came too late.
	writer, err := openSQLitePool(path, url.Values{"_txlock": {"immediate"}, "_pragma": pragmas})
	if err != nil {
		return nil, err
	}
	reader, err := openSQLitePool(path, url.Values{"_pragma": append(pragmas, "query_only(ON)")})
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	writer.SetMaxOpenConns(1)
	reader.SetMaxOpenConns(sqliteReaders)
	reader.SetMaxIdleConns(sqliteReaders)

	return newDatabase(options.Options, dialect{
		migrations: migrations,
		hasSchema:  `SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = 'weir_schema'`,
		prepare:    func(ctx context.Context) error { return prepareSQLite(ctx, path, writer) },
		begin:      &sql.TxOptions{},
		snapshot:   &sql.TxOptions{ReadOnly: true},
		place:      func(int) string { return "?" },
		timeArg:    func(t time.Time) any { return t.UnixMilli() },
		classify:   classifySQLite,
		schemaGone: func(error) bool { return false }, // an open file stays what it was, even when its name is gone
	}, writer, reader, func() error { return errors.Join(reader.Close(), writer.Close()) }), nil
}

func openSQLitePool(path string, query url.Values) (*sql.DB, error) {
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode()
	connector, err := sqlite.NewConnector(name)
	if err != nil {
		return nil, fmt.Errorf("rule store: open %q: %w", path, err)
	}
	return sql.OpenDB(connector), nil
}

// prepareSQLite makes the file, which SQLite would make readable to all, and turns on its write-ahead log.
func prepareSQLite(ctx context.Context, path string, writer *sql.DB) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	} else if info.Mode().Perm()&0o077 != 0 {
		if err := file.Chmod(0o600); err != nil {
			return fmt.Errorf("%w: others may read %s: %w", ErrUnavailable, path, err)
		}
	}
	for {
		var mode string
		err := writer.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode)
		switch {
		case err == nil && mode == "wal":
			return nil
		case err == nil:
			return fmt.Errorf("%w: %s has journal mode %q and cannot have a write-ahead log: put it on a local file system", ErrUnavailable, path, mode)
		case !isBusy(err):
			return err
		}
		// Changing the mode does not wait for other processes that do the same at the same moment.
		select {
		case <-ctx.Done():
			return err
		case <-time.After(jitter(10 * time.Millisecond)):
		}
	}
}

// The low byte of an SQLite error code is its class; the rest tells more.
const sqliteClass = 0xff

func isBusy(err error) bool {
	var failed *sqlite.Error
	return errors.As(err, &failed) && failed.Code()&sqliteClass == sqlite3.SQLITE_BUSY
}

func classifySQLite(err error) error {
	var failed *sqlite.Error
	if !errors.As(err, &failed) {
		return ErrUnavailable
	}
	switch failed.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return ErrExists
	}
	switch failed.Code() & sqliteClass {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return ErrInvalid
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: no space is left for the database: free some on its disk", ErrUnavailable)
	case sqlite3.SQLITE_BUSY:
		return fmt.Errorf("%w: another process holds the database's lock", ErrUnavailable)
	default:
		return ErrUnavailable
	}
}
