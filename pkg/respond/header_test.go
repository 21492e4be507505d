package respond_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// now is a quarter past a whole second, which most clocks are not.
var now = time.Unix(1_700_000_000, 250e6)

var (
	perMinute = respond.Limit{Name: "api", Count: 100, Window: time.Minute, Remaining: 42, ResetAfter: 29750 * time.Millisecond}
	perDay    = respond.Limit{Name: "daily", Count: 5000, Window: 24 * time.Hour, Remaining: 4000, ResetAfter: 7 * time.Hour}
	denied    = respond.Limit{
		Name: "burst", Count: 10, Window: time.Second, Burst: 20, Remaining: 0,
		ResetAfter: 1900 * time.Millisecond, RetryAfter: 90 * time.Millisecond, Denied: true,
	}
)

// lines appends d's headers in a form that is easy to compare.
func lines(t *testing.T, options respond.Options, d respond.Decision) string {
	t.Helper()
	formatter, err := respond.New(options)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, h := range formatter.Append(nil, &d, now) {
		text.WriteString(h.Name + ": " + h.Value + "\n")
	}
	return text.String()
}

func TestAppend(t *testing.T) {
	both := respond.Decision{Limits: []respond.Limit{perDay, perMinute}}
	refused := respond.Decision{Denied: true, Limits: []respond.Limit{perMinute, denied}}
	tests := []struct {
		name     string
		options  respond.Options
		decision respond.Decision
		want     string
	}{
		{"nothing asked for", respond.Options{}, both, ""},
		{"nothing asked for, denied", respond.Options{}, refused, "Retry-After: 1\n"},
		{"no retry after", respond.Options{NoRetryAfter: true}, refused, ""},
		{"no limits", respond.Options{Styles: respond.XRateLimit | respond.IETF}, respond.Decision{}, ""},
		{
			"no limits, denied",
			respond.Options{Styles: respond.XRateLimit | respond.IETF},
			respond.Decision{Denied: true, Cause: respond.ReducedCapacity},
			"Retry-After: 1\n",
		},
		{"denied by a rule", respond.Options{}, respond.Decision{Denied: true, Cause: respond.Refused}, ""},
		{
			"x-ratelimit", respond.Options{Styles: respond.XRateLimit}, both, "" +
				"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 42\nX-RateLimit-Reset: 1700000030\n",
		},
		{
			"x-ratelimit in seconds from now", respond.Options{Styles: respond.XRateLimit, Reset: respond.ResetDelta}, both, "" +
				"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 42\nX-RateLimit-Reset: 30\n",
		},
		{
			"x-ratelimit denied", respond.Options{Styles: respond.XRateLimit}, refused, "" +
				"X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1700000003\nRetry-After: 1\n",
		},
		{
			"envoy", respond.Options{Styles: respond.Envoy}, refused, "" +
				"X-RateLimit-Limit: 10, 100;w=60;name=\"api\", 10;w=1;burst=20;name=\"burst\"\n" +
				"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2\nRetry-After: 1\n",
		},
		{
			"draft-03", respond.Options{Styles: respond.Draft03}, both, "" +
				"RateLimit-Limit: 100, 5000;w=86400, 100;w=60\nRateLimit-Remaining: 42\nRateLimit-Reset: 30\n",
		},
		{
			"ietf", respond.Options{Styles: respond.IETF}, refused, "" +
				"RateLimit: \"api\";r=42;t=30, \"burst\";r=0;t=1\n" +
				"RateLimit-Policy: \"api\";q=100;w=60, \"burst\";q=10;w=1;weir-burst=20\nRetry-After: 1\n",
		},
		{
			"kong", respond.Options{Styles: respond.Kong}, both, "" +
				"RateLimit-Limit: 100\nRateLimit-Remaining: 42\nRateLimit-Reset: 30\n" +
				"X-RateLimit-Limit-Day: 5000\nX-RateLimit-Remaining-Day: 4000\n" +
				"X-RateLimit-Limit-Minute: 100\nX-RateLimit-Remaining-Minute: 42\n",
		},
		{
			"kong, a window without a name",
			respond.Options{Styles: respond.Kong},
			respond.Decision{Limits: []respond.Limit{{Count: 7, Window: 30 * time.Second, Remaining: 6}}},
			"" +
				"RateLimit-Limit: 7\nRateLimit-Remaining: 6\nRateLimit-Reset: 0\n" +
				"X-RateLimit-Limit-30: 7\nX-RateLimit-Remaining-30: 6\n",
		},
		{
			"custom",
			respond.Options{Styles: respond.Custom, Names: respond.Names{Limit: "A-Limit", Remaining: "A-Left", Reset: "A-Reset"}},
			both, "A-Limit: 100\nA-Left: 42\nA-Reset: 30\n",
		},
		{
			"custom, one header",
			respond.Options{Styles: respond.Custom, Names: respond.Names{Remaining: "Left"}},
			both, "Left: 42\n",
		},
		{
			"custom yields to a style with the same name",
			respond.Options{Styles: respond.Draft03 | respond.Custom, Names: respond.Names{Limit: "ratelimit-limit", Reset: "Reset"}},
			respond.Decision{Limits: []respond.Limit{perMinute}},
			"" +
				"RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 42\nRateLimit-Reset: 30\nReset: 30\n",
		},
		{
			"all at once",
			respond.Options{Styles: respond.XRateLimit | respond.Envoy | respond.Draft03 | respond.Kong | respond.IETF},
			respond.Decision{Limits: []respond.Limit{perMinute}},
			"" +
				"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 42\nX-RateLimit-Reset: 1700000030\n" +
				"RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 42\nRateLimit-Reset: 30\n" +
				"X-RateLimit-Limit-Minute: 100\nX-RateLimit-Remaining-Minute: 42\n" +
				"RateLimit: \"api\";r=42;t=30\nRateLimit-Policy: \"api\";q=100;w=60\n",
		},
		{
			"ietf with unit and partition",
			respond.Options{Styles: respond.IETF},
			respond.Decision{Limits: []respond.Limit{{
				Name: "bytes", Count: 65535, Window: 10 * time.Second, Remaining: 9, ResetAfter: time.Second,
				Unit: "content-bytes", Partition: "App-999",
			}}},
			"" +
				"RateLimit: \"bytes\";r=9;t=1;pk=:QXBwLTk5OQ==:\n" +
				"RateLimit-Policy: \"bytes\";q=65535;qu=\"content-bytes\";w=10;pk=:QXBwLTk5OQ==:\n",
		},
		{
			"one name, two windows",
			respond.Options{Styles: respond.IETF},
			respond.Decision{Limits: []respond.Limit{
				{Name: "api", Count: 5, Window: time.Second, Remaining: 4, ResetAfter: 1},
				{Name: "api", Count: 90, Window: time.Hour, Remaining: 80, ResetAfter: time.Minute},
			}},
			"" +
				"RateLimit: \"api-1\";r=4;t=1, \"api-3600\";r=80;t=60\n" +
				"RateLimit-Policy: \"api-1\";q=5;w=1, \"api-3600\";q=90;w=3600\n",
		},
		{
			"one name, one window: the tightest",
			respond.Options{Styles: respond.IETF | respond.Kong},
			respond.Decision{Limits: []respond.Limit{
				{Name: "ip", Count: 5, Window: time.Second, Remaining: 4, ResetAfter: 1},
				{Name: "ip", Count: 5, Window: time.Second, Remaining: 2, ResetAfter: 1},
				{Name: "ip", Count: 5, Window: time.Second, Remaining: 3, ResetAfter: 1},
			}},
			"" +
				"RateLimit-Limit: 5\nRateLimit-Remaining: 2\nRateLimit-Reset: 1\n" +
				"X-RateLimit-Limit-Second: 5\nX-RateLimit-Remaining-Second: 2\n" +
				"RateLimit: \"ip\";r=2;t=1\nRateLimit-Policy: \"ip\";q=5;w=1\n",
		},
		{
			"a name that would break out",
			respond.Options{Styles: respond.IETF | respond.Envoy},
			respond.Decision{Limits: []respond.Limit{{Name: "a\"b\\c\r\nX: y\xff€", Count: 1, Window: time.Second}}},
			"" +
				"X-RateLimit-Limit: 1, 1;w=1;name=\"a%22b%5Cc%0D%0AX: y%FF%E2%82%AC\"\n" +
				"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 0\n" +
				"RateLimit: \"a%22b%5Cc%0D%0AX: y%FF%E2%82%AC\";r=0;t=0\n" +
				"RateLimit-Policy: \"a%22b%5Cc%0D%0AX: y%FF%E2%82%AC\";q=1;w=1\n",
		},
		{
			"numbers out of range",
			respond.Options{Styles: respond.IETF | respond.XRateLimit},
			respond.Decision{Limits: []respond.Limit{{Count: -1, Window: -time.Second, Remaining: -5, ResetAfter: -time.Hour}}},
			"" +
				"X-RateLimit-Limit: 0\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1700000001\n" +
				"RateLimit: \"default\";r=0;t=0\nRateLimit-Policy: \"default\";q=0;w=1\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := lines(t, tt.options, tt.decision); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestNewLimit(t *testing.T) {
	bucket := &ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 100, Burst: 200, Window: time.Minute, Kind: ratelimit.Quota}
	got := respond.NewLimit(bucket, "rule", ratelimit.Result{Remaining: 3, ResetAfter: 4, RetryAfter: 5})
	want := respond.Limit{
		Name: "rule", Count: 100, Burst: 200, Window: time.Minute, Remaining: 3, ResetAfter: 4, RetryAfter: 5,
		Kind: ratelimit.Quota, Denied: true,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	window := &ratelimit.Limit{Name: "own", Algorithm: ratelimit.FixedWindow, Count: 7, Window: time.Hour}
	got = respond.NewLimit(window, "rule", ratelimit.Result{Allowed: true, Remaining: 6, ResetAfter: 1})
	want = respond.Limit{Name: "own", Count: 7, Window: time.Hour, Remaining: 6, ResetAfter: 1}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
