package rulestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// database is the Store over either database.
type database struct {
	dialect
	Options
	writer, reader *sql.DB // one and the same for Postgres

	alive     context.Context // ends with Close
	end       context.CancelFunc
	closeOnce sync.Once
	closeErr  error
	release   func() error // closes the pools

	migration migration
	watchers  watchers
}

var _ Store = (*database)(nil)

var errClosed = fmt.Errorf("%w: it is closed", ErrUnavailable)

func newDatabase(options Options, d dialect, writer, reader *sql.DB, release func() error) *database {
	alive, end := context.WithCancel(context.Background())
	return &database{dialect: d, Options: options, writer: writer, reader: reader, release: release, alive: alive, end: end}
}

// call runs f under the timeout with the schema in place, and gives its error a place and a class.
func (d *database) call(ctx context.Context, timeout time.Duration, what string, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(d.alive, cancel)()

	err := d.ready(bounded)
	if err == nil {
		if err = f(bounded); err != nil && d.schemaGone(err) {
			d.migration.forget()
		}
	}
	switch {
	case err == nil:
		return nil
	case isClassified(err):
		return fmt.Errorf("%s: %w", what, err)
	case d.alive.Err() != nil:
		return fmt.Errorf("%s: %w", what, errClosed)
	case errors.Is(ctx.Err(), context.Canceled): // the caller has gone
		return fmt.Errorf("%s: %w", what, ctx.Err())
	case bounded.Err() != nil:
		return fmt.Errorf("%s: %w: no answer in time (at most %v): %w", what, ErrUnavailable, timeout, err)
	default:
		return fmt.Errorf("%s: %w: %w", what, d.classify(err), err)
	}
}

// isClassified tells whether an error already says what a caller needs to know.
func isClassified(err error) bool {
	if _, own := errors.AsType[*callbackError](err); own {
		return true
	}
	for _, sentinel := range []error{ErrNotFound, ErrExists, ErrStale, ErrInvalid, ErrUnavailable, ErrCorrupt} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// Ping implements Store.
func (d *database) Ping(ctx context.Context) error {
	_, err := d.Revision(ctx)
	return err
}

// Close implements Store.
func (d *database) Close() error {
	d.closeOnce.Do(func() {
		d.end()
		d.migration.wait()
		d.watchers.wait()
		d.closeErr = d.release()
	})
	return d.closeErr
}
