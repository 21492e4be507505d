package local_test

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/kongplugin/internal/local"
	"github.com/weirhq/weir/kongplugin/internal/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t *testing.T, config string) *settings.Settings {
	t.Helper()
	s, problems := settings.Parse([]byte(config))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return s
}

// Instances share an engine if all that it is made of is equal, and the last one closes it.
func TestSharing(t *testing.T) {
	pool := &local.Pool{Logger: slog.New(slog.DiscardHandler)}
	var open []*local.Decider
	engine := func(config string, want int) {
		t.Helper()
		d, err := pool.Engine(parse(t, config))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, d)
		if got := pool.Len(); got != want {
			t.Errorf("%s: %d engines, want %d", config, got, want)
		}
	}
	engine(`{"minute": 5}`, 1)
	engine(`{"hour": 7, "limit_by": "ip", "error_code": 403, "fault_tolerant": false}`, 1) // in memory nothing can be away
	engine(`{"minute": 5, "key_prefix": "other"}`, 2)
	engine(`{"minute": 5, "redis": {"host": "127.0.0.1"}}`, 3)
	engine(`{"minute": 9, "redis": {"host": "127.0.0.1", "port": 6379}}`, 3)
	engine(`{"minute": 5, "redis": {"host": "127.0.0.1", "database": 1}}`, 4)
	engine(`{"minute": 5, "redis": {"host": "127.0.0.1"}, "fault_tolerant": false}`, 5)
	standIn, err := pool.StandIn(parse(t, `{"minute": 5}`))
	if err != nil {
		t.Fatal(err)
	}
	if pool.Len() != 6 {
		t.Error("a stand-in shares the counters of an engine")
	}
	open = append(open, standIn)
	for _, d := range open {
		d.Close()
		d.Close() // twice is once
	}
	if got := pool.Len(); got != 0 {
		t.Errorf("%d engines are left", got)
	}
}

func TestFaultyTLS(t *testing.T) {
	pool := &local.Pool{Logger: slog.New(slog.DiscardHandler)}
	if _, err := pool.Engine(parse(t, `{"minute": 5, "redis": {"host": "h", "ssl": true, "ca_file": "/nowhere.pem"}}`)); err == nil {
		t.Error("a CA file that is not there is no error")
	}
	if pool.Len() != 0 {
		t.Error("a failed engine is kept")
	}
}
