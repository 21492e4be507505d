package redisstore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/pkg/tlsfile"
	"github.com/weirhq/weir/test/servers"
)

// A file of CAs that is replaced holds for the next connection, without a restart.
func TestAuthorityChanges(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t, servers.WithTLS())
	other := servers.NewAuthority(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "ca.pem")
	replace(t, other.CAFile, file)
	client, err := tlsfile.NewClient(tlsfile.ClientOptions{CAFile: file, CheckEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	store := open(t, redisstore.Options{URL: "rediss://" + server.Addr(), TLSConfig: client.Config})
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	if c := take(t.Context(), store, one("tls:3600", l)); c.Err == nil || !strings.Contains(c.Err.Error(), "unknown authority") {
		t.Errorf("with another authority: %v", c.Err)
	}
	replace(t, server.CAFile(), file)
	servers.Eventually(t, "the new authority is trusted", func() bool { return take(t.Context(), store, one("tls:3600", l)).Err == nil })
}

// Where names are not checked the chain still is.
func TestNameIsNotChecked(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t, servers.WithTLS())
	other := servers.NewAuthority(t, t.TempDir())
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	for _, test := range []struct {
		name, ca string
		skip     bool
		fault    string
	}{
		{name: "name checked", ca: server.CAFile(), fault: "redis.example"},
		{name: "name not checked", ca: server.CAFile(), skip: true},
		{name: "another authority", ca: other.CAFile, skip: true, fault: "unknown authority"},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, err := tlsfile.NewClient(tlsfile.ClientOptions{CAFile: test.ca, ServerName: "redis.example", SkipNameCheck: test.skip})
			if err != nil {
				t.Fatal(err)
			}
			store := open(t, redisstore.Options{Addr: server.Addr(), TLSConfig: client.Config})
			err = take(t.Context(), store, one("name:3600", l)).Err
			switch {
			case test.fault == "" && err != nil:
				t.Error(err)
			case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
				t.Errorf("%v, want %q", err, test.fault)
			}
		})
	}
}

// replace puts a copy of a file in the place of another one, at once.
func replace(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}
