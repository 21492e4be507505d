package rulestore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"time"
)

// dialect is in what the two databases differ. Statements are otherwise the same text for both.
type dialect struct {
	migrations fs.FS // NNNN_NAME.sql, each run as one script
	// hasSchema is a query for whether the table weir_schema is there.
	hasSchema string
	// lockSchema, if not empty, is a statement that keeps other processes out until the transaction ends.
	lockSchema string
	// prepare, if not nil, makes the database ready for its first transaction.
	prepare func(context.Context) error
	// begin and snapshot are the transactions for writing and for reading one consistent view.
	begin, snapshot *sql.TxOptions
	// longRead, if not empty, is a statement that lets the rest of a snapshot run for LoadTimeout.
	longRead string
	// notify, if not empty, is a statement that tells other processes of the new revision once the transaction commits.
	notify string
	// listen, if not nil, calls heard for what notify sends, and whenever it may have missed something, until ctx ends.
	listen func(ctx context.Context, heard func())
	// place returns what stands for the n-th value of a statement, from 1. "$1" is understood by both, but SQLite takes its
	// time to number many of them.
	place func(n int) string
	// timeArg turns a time into what a time column takes.
	timeArg func(time.Time) any
	// classify returns the sentinel for an error of the driver.
	classify func(error) error
	// schemaGone tells whether an error of the driver means that the tables are not there.
	schemaGone func(error) bool
}

// timestamp reads a time column of either database.
type timestamp struct{ time.Time }

// Scan implements sql.Scanner.
func (t *timestamp) Scan(value any) error {
	switch v := value.(type) {
	case time.Time:
		t.Time = v.UTC()
	case int64:
		t.Time = time.UnixMilli(v).UTC()
	default:
		return fmt.Errorf("a time column holds a %T", value)
	}
	return nil
}
