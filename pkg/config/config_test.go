package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// differences lists the settings in which two configurations differ.
func differences(a, b *Config) []string {
	var paths []string
	left, right := settings(a), settings(b)
	for i := range left {
		x, y := left[i].value, right[i].value
		if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
			continue
		}
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			paths = append(paths, left[i].path+": "+show(x)+" against "+show(y))
		}
	}
	return paths
}

func TestDefaultsAreValid(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
	loaded, err := Load(Source{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := differences(Defaults(), loaded); diff != nil {
		t.Errorf("Load without input differs from Defaults: %v", diff)
	}
}

// The owner of the k1s0 API has fixed these names and defaults.
func TestNamesAndDefaultsOfTheContract(t *testing.T) {
	want := map[string]string{
		"app.name": "ratelimit", "app.environment": "production",
		"server.host": "0.0.0.0", "server.port": "8080", "server.grpc_port": "50051",
		"database.host": "", "database.port": "5432", "database.name": "", "database.user": "", "database.password": "",
		"database.password_file": "", "database.max_open_conns": "25", "database.max_idle_conns": "5", "database.conn_max_lifetime": "5m",
		"redis.url": "", "redis.pool_size": "20", "redis.timeout_ms": "100", "redis.password_file": "",
		"ratelimit.fail_open": "true", "ratelimit.default_limit": "100", "ratelimit.default_window_seconds": "60",
	}
	got := make(map[string]string)
	for _, f := range Fields() {
		got[f.Path] = f.Default
	}
	for path, value := range want {
		if text, ok := got[path]; !ok || text != value {
			t.Errorf("%s: default %q, present %v; want %q", path, text, ok, value)
		}
	}
	for _, path := range []string{"app.version", "database.ssl_mode"} {
		if _, ok := got[path]; !ok {
			t.Errorf("%s is missing", path)
		}
	}
}

func TestFailureMode(t *testing.T) {
	tests := []struct {
		failOpen bool
		mode     string
		want     ratelimit.FailureMode
	}{
		{true, "", ratelimit.FailOpen},
		{false, "", ratelimit.FailClosed},
		{true, "deny", ratelimit.FailClosed},
		{false, "allow", ratelimit.FailOpen},
		{true, "local", ratelimit.FailLocal},
		{false, "local", ratelimit.FailLocal},
	}
	for _, test := range tests {
		c := Defaults()
		c.RateLimit.FailOpen, c.Failure.Mode = test.failOpen, test.mode
		if got := c.FailureMode(); got != test.want {
			t.Errorf("fail_open %v, mode %q: %v, want %v", test.failOpen, test.mode, got, test.want)
		}
	}
}

func TestConversions(t *testing.T) {
	c := Defaults()
	if got := c.Redis.Timeout(); got != 100*time.Millisecond {
		t.Errorf("Redis.Timeout is %v", got)
	}
	if got := c.RateLimit.DefaultWindow(); got != time.Minute {
		t.Errorf("RateLimit.DefaultWindow is %v", got)
	}
	if c.TLS.Enabled() || c.Redis.Enabled() || c.Database.Enabled() {
		t.Error("a server without settings uses TLS, Redis or a database")
	}
}
