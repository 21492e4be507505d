package rulestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// PostgresOptions say where the database is and how many connections it gets. What is left empty comes from libpq's
// environment variables (PGHOST, PGSSLMODE, ...) and then from its defaults.
type PostgresOptions struct {
	Options
	Host string // name, address, or the folder of a Unix socket
	Port uint16 // Defaults to 5432
	Name string // of the database
	User string
	// Password, if not nil, is asked before each new connection, so that a password may change while the process runs.
	Password func() (string, error)
	// SSLMode is one of libpq's: disable, allow, prefer, require, verify-ca, verify-full. Defaults to prefer.
	SSLMode string
	// SSLRootCert, SSLCert and SSLKey are files, as in libpq.
	SSLRootCert, SSLCert, SSLKey string

	MaxOpenConns    int           // besides one for each Watch. Defaults to 25
	MaxIdleConns    int           // Defaults to 5, or MaxOpenConns if that is less
	ConnMaxLifetime time.Duration // Defaults to 5 minutes
}

const (
	defaultMaxOpenConns    = 25
	defaultMaxIdleConns    = 5
	defaultConnMaxLifetime = 5 * time.Minute

	// channel is the one that LISTEN and NOTIFY use.
	channel = "weir_rules"
	// schemaLock is the key of the advisory lock that a migration holds: "weir" in ASCII.
	schemaLock = 0x77656972
)

// PasswordFile returns a source for PostgresOptions.Password that reads a file each time. Line ends at its end do not count.
func PasswordFile(path string) func() (string, error) {
	return func() (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read the database's password: %w", err)
		}
		return strings.TrimRight(string(text), "\r\n"), nil
	}
}

// OpenPostgres returns a store in a Postgres database, version 12 or newer. The user needs the right to create tables once,
// for the migration. The error is about the options: the first connection is made with the first call.
func OpenPostgres(options PostgresOptions) (Store, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	config, err := options.connConfig()
	if err != nil {
		return nil, err
	}
	migrations, err := fs.Sub(migrationFiles, "migrations/postgres")
	if err != nil {
		return nil, err
	}
	lines := newLines()
	config.DialFunc = lines.dial
	pool := stdlib.OpenDB(*config,
		stdlib.OptionBeforeConnect(options.authenticate),
		stdlib.OptionAfterConnect(options.bound))
	pool.SetMaxOpenConns(options.MaxOpenConns)
	pool.SetMaxIdleConns(options.MaxIdleConns)
	pool.SetConnMaxLifetime(options.ConnMaxLifetime)
	ear := &listener{config: config, authenticate: options.authenticate, logger: options.Logger}

	return newDatabase(options.Options, dialect{
		migrations: migrations,
		// Not to_regclass, which may remember from before the lock that there is none.
		hasSchema:  `SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relname = 'weir_schema' AND relkind = 'r' AND pg_table_is_visible(oid))`,
		lockSchema: fmt.Sprintf(`SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(%d)`, schemaLock),
		begin:      &sql.TxOptions{Isolation: sql.LevelReadCommitted},
		snapshot:   &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		longRead:   fmt.Sprintf(`SET LOCAL statement_timeout = %d`, options.LoadTimeout.Milliseconds()),
		notify:     `NOTIFY ` + channel,
		listen:     ear.run,
		place:      func(n int) string { return "$" + strconv.Itoa(n) },
		timeArg:    func(t time.Time) any { return t },
		classify:   classifyPostgres,
		schemaGone: func(err error) bool { return hasCode(err, undefinedTable) },
	}, pool, pool, func() error {
		defer lines.cut()
		return pool.Close()
	}), nil
}

func (o *PostgresOptions) complete() error {
	if err := o.Options.complete(); err != nil {
		return err
	}
	if o.MaxOpenConns < 0 || o.MaxIdleConns < 0 || o.ConnMaxLifetime < 0 {
		return fmt.Errorf("%w: rule store: connections %d open, %d idle, lifetime %v: none may be negative", ErrInvalid,
			o.MaxOpenConns, o.MaxIdleConns, o.ConnMaxLifetime)
	}
	if o.MaxOpenConns == 0 {
		o.MaxOpenConns = defaultMaxOpenConns
	}
	if o.MaxIdleConns == 0 {
		o.MaxIdleConns = min(defaultMaxIdleConns, o.MaxOpenConns)
	}
	if o.ConnMaxLifetime == 0 {
		o.ConnMaxLifetime = defaultConnMaxLifetime
	}
	return nil
}

func (o *PostgresOptions) connConfig() (*pgx.ConnConfig, error) {
	var settings []string
	set := func(name, value string) {
		if value != "" {
			value = strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value)
			settings = append(settings, fmt.Sprintf("%s='%s'", name, value))
		}
	}
	set("host", o.Host)
	if o.Port != 0 {
		set("port", strconv.Itoa(int(o.Port)))
	}
	set("dbname", o.Name)
	set("user", o.User)
	set("sslmode", o.SSLMode)
	set("sslrootcert", o.SSLRootCert)
	set("sslcert", o.SSLCert)
	set("sslkey", o.SSLKey)
	config, err := pgx.ParseConfig(strings.Join(settings, " "))
	if err != nil {
		return nil, fmt.Errorf("%w: rule store: database settings: %w", ErrInvalid, err)
	}
	config.ConnectTimeout = o.Timeout
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "weir"
	}
	return config, nil
}

// authenticate asks for the password of a new connection.
func (o *PostgresOptions) authenticate(_ context.Context, config *pgx.ConnConfig) (err error) {
	if o.Password != nil {
		config.Password, err = o.Password()
	}
	return err
}

// bound makes the server give up when the client cannot tell it to: a statement that nobody waits for any more, a lock, and
// a transaction whose replica has stopped in the middle while it keeps all others from writing. Settings in the first
// packet would be shorter, but connection poolers refuse them there.
func (o *PostgresOptions) bound(ctx context.Context, conn *pgx.Conn) error {
	limit := o.Timeout.Milliseconds()
	_, err := conn.Exec(ctx, fmt.Sprintf(
		`SET statement_timeout = %d; SET lock_timeout = %d; SET idle_in_transaction_session_timeout = %d`, limit, limit, 2*limit))
	return err
}

// Error codes of Postgres (appendix A of its manual).
const (
	uniqueViolation = "23505"
	undefinedTable  = "42P01"
)

func hasCode(err error, code string) bool {
	var failed *pgconn.PgError
	return errors.As(err, &failed) && failed.Code == code
}

func classifyPostgres(err error) error {
	var failed *pgconn.PgError
	if !errors.As(err, &failed) {
		return ErrUnavailable
	}
	switch {
	case failed.Code == uniqueViolation:
		return ErrExists
	case strings.HasPrefix(failed.Code, "22"), strings.HasPrefix(failed.Code, "23"): // data, constraint
		return ErrInvalid
	default:
		return ErrUnavailable
	}
}
