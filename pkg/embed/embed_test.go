package embed_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/pkg/embed"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, options embed.Options) *embed.Engine {
	t.Helper()
	e, err := embed.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// allowed asks n times and returns how many may go on.
func allowed(t *testing.T, e *embed.Engine, n int, request ratelimit.Request) (passed int) {
	t.Helper()
	for range n {
		err := e.Decide(t.Context(), &request, func(decision *engine.Decision) {
			if !decision.Over {
				passed++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return passed
}

func byUser(limit *ratelimit.Limit) ratelimit.Request {
	return ratelimit.Request{Domain: "d", Cost: 1, Fallback: limit, Descriptors: []ratelimit.Descriptor{
		{Entries: []ratelimit.Entry{{Key: "user", Value: "ann"}}, Limit: limit},
	}}
}

func hourly(count int64) *ratelimit.Limit {
	return &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: count, Window: time.Hour}
}

func TestLimitsOfTheRequest(t *testing.T) {
	if got := allowed(t, open(t, embed.Options{}), 10, byUser(hourly(4))); got != 4 {
		t.Errorf("%d passed, want 4", got)
	}
}

func TestStandInAllowsAFraction(t *testing.T) {
	if got := allowed(t, open(t, embed.Options{LocalOnly: true, Fraction: 0.25}), 20, byUser(hourly(12))); got != 3 {
		t.Errorf("%d passed, want a quarter of 12", got)
	}
}

func TestRulesAreFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("domain: d\ndescriptors: [{key: }]\n")
	e := open(t, embed.Options{Rules: []string{path}})
	request := byUser(nil)
	err := e.Decide(t.Context(), &request, func(*engine.Decision) { t.Error("decided without rules") })
	if !errors.Is(err, embed.ErrNoRules) {
		t.Fatalf("error %v", err)
	}
	write("domain: d\ndescriptors: [{key: user, limits: [{algorithm: fixed_window, limit: 2, window: 1h}]}]\n")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := e.Decide(t.Context(), &request, func(*engine.Decision) {}); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the rules were never loaded")
		}
	}
	if got := allowed(t, e, 5, request); got != 1 {
		t.Errorf("%d passed after the first of 2, want 1", got)
	}
}

func TestRedisThatIsNotThere(t *testing.T) {
	for mode, want := range map[ratelimit.FailureMode]int{
		ratelimit.FailureDefault: 10, ratelimit.FailOpen: 10, ratelimit.FailClosed: 0, ratelimit.FailLocal: 2,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			e := open(t, embed.Options{
				Redis: &embed.Redis{Addr: filepath.Join(t.TempDir(), "none"), Timeout: 50 * time.Millisecond}, OnFailure: mode, Fraction: 0.5,
			})
			if got := allowed(t, e, 10, byUser(hourly(4))); got != want {
				t.Errorf("%d passed, want %d", got, want)
			}
		})
	}
}

func TestFaultyOptions(t *testing.T) {
	if _, err := embed.Open(embed.Options{Redis: &embed.Redis{}}); err == nil {
		t.Error("a Redis without an address was opened")
	}
}

func TestFaultyRequest(t *testing.T) {
	e := open(t, embed.Options{})
	err := e.Decide(t.Context(), &ratelimit.Request{}, func(*engine.Decision) { t.Error("decided") })
	if !errors.Is(err, engine.ErrNoDomain) {
		t.Errorf("error %v", err)
	}
}
