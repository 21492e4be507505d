package redisstore_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/test/servers"
)

func TestConnections(t *testing.T) {
	t.Parallel()
	plain := servers.Redis(t, servers.WithUnixSocket())
	const special = "p:a/s@s%w#rd?"
	locked := servers.Redis(t, servers.WithPassword(special))
	acl := servers.Redis(t, servers.WithUser("weir", "secret", "~c:* +@all"))
	secure := servers.Redis(t, servers.WithTLS(), servers.WithPassword("secret"))
	for name, test := range map[string]struct {
		options redisstore.Options
		fault   string // what the charge's error says; empty: it is counted
	}{
		"address":           {options: redisstore.Options{Addr: plain.Addr()}},
		"URL":               {options: redisstore.Options{URL: "redis://" + plain.Addr()}},
		"URL with database": {options: redisstore.Options{URL: "redis://" + plain.Addr() + "/7"}},
		"database":          {options: redisstore.Options{Addr: plain.Addr(), DB: 8}},
		"database too high": {options: redisstore.Options{Addr: plain.Addr(), DB: 99}, fault: "DB index"},
		"socket":            {options: redisstore.Options{Addr: plain.Socket()}},
		"socket URL":        {options: redisstore.Options{URL: "unix://" + plain.Socket() + "?db=9"}},
		"no socket":         {options: redisstore.Options{Addr: plain.Socket() + "x"}, fault: "cannot connect"},
		"needless password": {options: redisstore.Options{Addr: plain.Addr(), Password: "x"}},
		"password":          {options: redisstore.Options{Addr: locked.Addr(), Password: special}},
		"password in URL":   {options: redisstore.Options{URL: "redis://:" + url.QueryEscape(special) + "@" + locked.Addr()}},
		"password asked for": {options: redisstore.Options{Addr: locked.Addr(), Credentials: func() (string, string) {
			return "", special
		}}},
		"no password":                 {options: redisstore.Options{Addr: locked.Addr()}, fault: "set one"},
		"wrong password":              {options: redisstore.Options{Addr: locked.Addr(), Password: "wrong"}, fault: "password is wrong"},
		"user":                        {options: redisstore.Options{Addr: acl.Addr(), Username: "weir", Password: "secret"}},
		"user in URL":                 {options: redisstore.Options{URL: "redis://weir:secret@" + acl.Addr()}},
		"user in URL, password apart": {options: redisstore.Options{URL: "redis://weir@" + acl.Addr(), Password: "secret"}},
		"user in URL, password asked for": {options: redisstore.Options{URL: "redis://weir:old@" + acl.Addr(), Credentials: func() (string, string) {
			return "", "secret"
		}}},
		"wrong user":        {options: redisstore.Options{Addr: acl.Addr(), Username: "w", Password: "secret"}, fault: "password is wrong"},
		"TLS":               {options: redisstore.Options{Addr: secure.Addr(), Password: "secret", TLS: secure.TLSConfig()}},
		"TLS URL":           {options: redisstore.Options{URL: "rediss://:secret@" + secure.Addr(), TLS: secure.TLSConfig()}},
		"unknown authority": {options: redisstore.Options{URL: "rediss://:secret@" + secure.Addr()}, fault: "unknown authority"},
		"TLS to plain text": {options: redisstore.Options{Addr: plain.Addr(), TLS: secure.TLSConfig()}, fault: "did not decide"},
		"plain text to TLS": {options: redisstore.Options{Addr: secure.Addr(), Password: "secret"}, fault: "did not decide"},
		"name of another host": {options: redisstore.Options{Addr: secure.Addr(), TLS: &tls.Config{
			RootCAs: secure.TLSConfig().RootCAs, ServerName: "redis.example", MinVersion: tls.VersionTLS12,
		}}, fault: "redis.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.fault != "" {
				test.options.Timeout = 2 * time.Second // some faults are silence
			}
			store := open(t, test.options)
			l := limit(t, ratelimit.TokenBucket, 10, time.Hour)
			c := take(t.Context(), store, one("c:"+url.PathEscape(name)+":3600", l))
			switch {
			case test.fault == "" && (c.Err != nil || c.Results[0].Remaining != 9):
				t.Errorf("%+v, %v", c.Results[0], c.Err)
			case test.fault != "" && (!errors.Is(c.Err, redisstore.ErrUnavailable) || !strings.Contains(c.Err.Error(), test.fault)):
				t.Errorf("error %v, want ErrUnavailable that says %q", c.Err, test.fault)
			}
			if c.Err != nil && (strings.Contains(c.Err.Error(), special) || strings.Contains(c.Err.Error(), "secret")) {
				t.Errorf("the error tells the password: %v", c.Err)
			}
			if err := store.Ping(t.Context()); (err != nil) != (test.fault != "") {
				t.Errorf("ping: %v", err)
			}
		})
	}
}

// A password that is changed is picked up by the next connection, without a restart.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t, servers.WithPassword("old"))
	var password atomic.Value
	password.Store("old")
	store := open(t, redisstore.Options{Addr: server.Addr(), Credentials: func() (string, string) { return "", password.Load().(string) }})
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	if c := take(t.Context(), store, one("password:3600", l)); c.Err != nil {
		t.Fatal(c.Err)
	}
	server.Do("config", "set", "requirepass", "new")
	server.Do("client", "kill", "type", "normal", "skipme", "yes")
	if err := take(t.Context(), store, one("password:3600", l)).Err; !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("error %v with the old password", err)
	}
	password.Store("new")
	if c := take(t.Context(), store, one("password:3600", l)); c.Err != nil {
		t.Errorf("with the new password: %v", c.Err)
	}
}

// A user who may not load scripts, but may run them, can count.
func TestLeastPermissions(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t, servers.WithConfig(
		"user weir on >secret ~p:* resetchannels -@all +evalsha +eval +time +mget +set +setrange +lrange +llen +lindex +ltrim +lset +rpush +pexpire +del +unlink +ping"))
	store := open(t, redisstore.Options{Addr: server.Addr(), Username: "weir", Password: "secret"})
	for _, algorithm := range ratelimit.Algorithms() {
		key := fmt.Sprintf("p:%v:3600", algorithm)
		l := limit(t, algorithm, 10, time.Hour)
		for range 2 {
			if c := take(t.Context(), store, one(key, l)); c.Err != nil {
				t.Errorf("%v: %v", algorithm, c.Err)
			}
		}
		if err := store.Reset(t.Context(), []string{key}); err != nil {
			t.Error(err)
		}
	}
	if err := take(t.Context(), store, one("other:key:3600", limit(t, ratelimit.FixedWindow, 1, time.Hour))).Err; err == nil ||
		!strings.Contains(err.Error(), "permission") {
		t.Errorf("error %v for a key that is not allowed", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for fault, options := range map[string]redisstore.Options{
		"no server is named":       {},
		"more than one":            {URL: "redis://a", Addr: "b:1"},
		"without the name":         {Sentinel: []string{"a:1"}},
		"without sentinels":        {Addr: "a:1", MasterName: "m"},
		"database -1":              {Addr: "a:1", DB: -1},
		"only database 0":          {Cluster: []string{"a:1"}, DB: 1},
		"pool size -1":             {Addr: "a:1", PoolSize: -1},
		"pool size 10001":          {Addr: "a:1", PoolSize: 10_001},
		"timeout -1s":              {Addr: "a:1", Timeout: -time.Second},
		"idempotency period -1s":   {Addr: "a:1", IdempotencyTTL: -time.Second},
		`address "a"`:              {Addr: "a"},
		`address "a:99999"`:        {Cluster: []string{"a:99999"}},
		`address ":1"`:             {Sentinel: []string{":1"}, MasterName: "m"},
		`scheme is "http"`:         {URL: "http://a"},
		`scheme is ""`:             {URL: "localhost"},
		"names no host":            {URL: "redis://:6379"},
		"names no socket":          {URL: "unix://"},
		"parameter \"pool_size\"":  {URL: "redis://a?pool_size=3"},
		`database is "x"`:          {URL: "redis://a/x"},
		"database is 3 and":        {URL: "redis://a/3", DB: 4},
		"the URL cannot be read":   {URL: "redis://user:pass/word@host:1"},
		"the URL cannot be read: ": {URL: "redis://user:hunter2%@host:1"},
	} {
		store, err := redisstore.New(options)
		if !errors.Is(err, redisstore.ErrOptions) || !strings.Contains(err.Error(), fault) || store != nil {
			t.Errorf("error %v, want one that says %q", err, fault)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "pass/word")) {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	var good, bad atomic.Int64
	store := open(t, redisstore.Options{Addr: server.Addr(), Observe: func(took time.Duration, err error) {
		if took <= 0 {
			t.Errorf("a round trip took %v", took)
		}
		if err != nil {
			bad.Add(1)
		} else {
			good.Add(1)
		}
	}})
	l := limit(t, ratelimit.SlidingWindow, 1000, time.Hour)
	var hits []ratelimit.Hit
	for i := range 50 {
		hits = append(hits, one(fmt.Sprintf("observe:%d", i), l))
	}
	for range 3 {
		charges := []ratelimit.Charge{
			{Hits: hits, Results: make([]ratelimit.Result, 50)}, {Hits: hits[:1], Results: make([]ratelimit.Result, 1)},
		}
		store.Take(t.Context(), charges)
	}
	if good.Load() != 3 || bad.Load() != 0 {
		t.Errorf("%d round trips and %d errors for three calls", good.Load(), bad.Load())
	}
	if stats := store.Stats(); stats.Open != 1 || stats.Idle != 1 || stats.Opened != 1 || stats.Reused != 2 {
		t.Errorf("%+v, want one connection, used three times", stats)
	}
	server.Kill()
	take(t.Context(), store, hits[0])
	if bad.Load() != 1 {
		t.Errorf("%d errors observed, want 1", bad.Load())
	}
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	server := servers.Redis(t)
	before := goleak.IgnoreCurrent()
	store, err := redisstore.New(redisstore.Options{Addr: server.Addr(), Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	l := limit(t, ratelimit.FixedWindow, 1000, time.Hour)
	crowd(20, func(int) { take(t.Context(), store, one("close:3600", l)) })
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := take(t.Context(), store, one("close:3600", l)).Err; !errors.Is(err, redisstore.ErrUnavailable) ||
		!strings.Contains(err.Error(), "closed") {
		t.Errorf("error %v after Close", err)
	}
	goleak.VerifyNone(t, before)
}
