package rulestore

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// listenPing is how long the line may be silent before it is tried.
	listenPing = 15 * time.Second
	// listenTimeout bounds a try of the line, and its making.
	listenTimeout = 5 * time.Second
	// Pauses before the line is made again.
	minRelisten, maxRelisten = 100 * time.Millisecond, 5 * time.Second
)

// listener hears Postgres' notifications on a connection of its own.
type listener struct {
	config       *pgx.ConnConfig
	authenticate func(context.Context, *pgx.ConnConfig) error
	logger       *slog.Logger
}

// run calls heard for each notification, and whenever it listens anew, until ctx ends.
func (l *listener) run(ctx context.Context, heard func()) {
	pause := minRelisten
	lost := false
	for {
		err := l.listen(ctx, func() {
			if lost {
				l.logger.InfoContext(ctx, "rule store: notifications are back")
			}
			lost, pause = false, minRelisten
			heard()
		})
		if ctx.Err() != nil {
			return
		}
		if !lost {
			l.logger.WarnContext(ctx, "rule store: no notifications, changes are found by polling", "error", err)
		}
		lost = true
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(pause)):
		}
		pause = min(2*pause, maxRelisten)
	}
}

func (l *listener) listen(ctx context.Context, heard func()) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // the server notices by itself
	}()
	for {
		heard() // at first for what came before the LISTEN
		for {
			quiet, cancel := context.WithTimeout(ctx, listenPing)
			_, err := conn.WaitForNotification(quiet)
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			if err := ping(ctx, conn); err != nil {
				return err
			}
		}
	}
}

func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	config := l.config.Copy()
	if err := l.authenticate(ctx, config); err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	return conn.Ping(ctx)
}
