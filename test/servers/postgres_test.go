package servers_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/test/servers"
)

func TestPostgresKeepsDataOverKillAndRestart(t *testing.T) {
	server := servers.Postgres(t)
	database := server.Database(t)
	database.Exec(t, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
	port := server.Port()
	for _, end := range []func(){server.Kill, func() {}} {
		end()
		server.Restart()
		conn, err := pgx.Connect(t.Context(), database.URL())
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT n FROM kept").Scan(&n); err != nil || n != 7 {
			t.Errorf("read %d, %v; want 7", n, err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if server.Port() != port {
		t.Errorf("port %d after restarts, want %d", server.Port(), port)
	}
}

func TestPostgresPausedDoesNotAnswer(t *testing.T) {
	server := servers.Postgres(t)
	conn, err := pgx.Connect(t.Context(), server.Database(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := conn.Ping(ctx); err == nil {
		t.Error("a paused server has answered")
	}
	server.Resume()
	conn, err = pgx.Connect(t.Context(), server.Database(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
