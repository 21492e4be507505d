package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/client"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// checker is a Checker that gives out a budget and remembers what it was asked.
type checker struct {
	mu     sync.Mutex
	asked  []client.Check
	answer func(ctx context.Context, check client.Check) (client.Decision, error)
}

func (c *checker) Check(ctx context.Context, check client.Check) (client.Decision, error) {
	c.mu.Lock()
	c.asked = append(c.asked, check)
	c.mu.Unlock()
	if c.answer == nil {
		return client.Decision{Allowed: true}, nil
	}
	return c.answer(ctx, check)
}

func (c *checker) last(t *testing.T) client.Check {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) == 0 {
		t.Fatal("nothing was checked")
	}
	return c.asked[len(c.asked)-1]
}

func (c *checker) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

func allowedWith(limits ...respond.Limit) func(context.Context, client.Check) (client.Decision, error) {
	return func(context.Context, client.Check) (client.Decision, error) {
		return client.Decision{Allowed: true, Limits: limits}, nil
	}
}

func deniedBy(limits ...respond.Limit) func(context.Context, client.Check) (client.Decision, error) {
	return func(context.Context, client.Check) (client.Decision, error) {
		return client.Decision{Limits: limits}, nil
	}
}

var perMinute = respond.Limit{Name: "api", Count: 10, Window: time.Minute, ResetAfter: 30 * time.Second}

func overMinute(kind ratelimit.Kind) respond.Limit {
	l := perMinute
	l.Denied, l.RetryAfter, l.Kind = true, 2500*time.Millisecond, kind
	return l
}

func fixed(key string) client.KeyFunc { return func(*client.Call) (string, error) { return key, nil } }

func newGuard(t *testing.T, options client.GuardOptions) *client.Guard {
	t.Helper()
	if options.Key == nil && options.Describe == nil {
		options.Key = fixed("ann")
	}
	guard, err := client.NewGuard(options)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// handled counts the requests that get to it.
type handled struct {
	mu sync.Mutex
	n  int
}

func (h *handled) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	h.n++
	h.mu.Unlock()
	_, _ = io.WriteString(w, "served")
}

func serve(guard *client.Guard, r *http.Request) (response *http.Response, served bool) {
	var next handled
	recorder := httptest.NewRecorder()
	guard.Middleware(&next).ServeHTTP(recorder, r)
	return recorder.Result(), next.n == 1
}

func TestMiddlewareAllows(t *testing.T) {
	left := perMinute
	left.Remaining = 7
	check := &checker{answer: allowedWith(left)}
	response, served := serve(newGuard(t, client.GuardOptions{Checker: check, Scope: "team"}), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	defer response.Body.Close()
	if !served || response.StatusCode != http.StatusOK {
		t.Fatalf("served: %t, status %d", served, response.StatusCode)
	}
	if got, want := response.Header.Get("RateLimit"), `"api";r=7;t=30`; got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	if got, want := response.Header.Get("RateLimit-Policy"), `"api";q=10;w=60`; got != want {
		t.Errorf("RateLimit-Policy: %s, want %s", got, want)
	}
	if got := response.Header.Get("Retry-After"); got != "" {
		t.Errorf("Retry-After: %s on a response that is no denial", got)
	}
	if got := check.last(t); got.Scope != "team" || got.Identifier != "ann" || got.Cost != 0 || got.Peek {
		t.Errorf("checked %+v", got)
	}
}

func TestMiddlewareDenies(t *testing.T) {
	for name, test := range map[string]struct {
		decision client.Decision
		options  client.GuardOptions
		accept   string
		status   int
		content  string
		retry    string
		body     string
	}{
		"limit":            {client.Decision{Limits: []respond.Limit{overMinute(ratelimit.Protection)}}, client.GuardOptions{}, "", 429, "application/problem+json", "3", respond.TypeQuotaExceeded},
		"quota":            {client.Decision{Limits: []respond.Limit{overMinute(ratelimit.Quota)}}, client.GuardOptions{}, "", 402, "application/problem+json", "3", respond.TypeQuotaExceeded},
		"quota as 429":     {client.Decision{Limits: []respond.Limit{overMinute(ratelimit.Quota)}}, client.GuardOptions{QuotaStatus: 429}, "", 429, "application/problem+json", "3", respond.TypeQuotaExceeded},
		"refused":          {client.Decision{Cause: respond.Refused}, client.GuardOptions{}, "", 429, "application/problem+json", "", respond.TypeAbnormalUsage},
		"reduced":          {client.Decision{Cause: respond.ReducedCapacity}, client.GuardOptions{}, "", 503, "application/problem+json", "1", respond.TypeReducedCapacity},
		"json":             {client.Decision{Limits: []respond.Limit{overMinute(0)}}, client.GuardOptions{}, "application/json", 429, "application/json", "3", `"API rate limit exceeded"`},
		"html":             {client.Decision{Limits: []respond.Limit{overMinute(0)}}, client.GuardOptions{Message: "a<b>"}, "text/html,*/*;q=0.1", 429, "text/html", "3", "a&lt;b&gt;"},
		"only plain text":  {client.Decision{Limits: []respond.Limit{overMinute(0)}}, client.GuardOptions{Media: []respond.MediaType{respond.Plain}}, "application/json", 429, "text/plain", "3", "API rate limit"},
		"hostile accept":   {client.Decision{Limits: []respond.Limit{overMinute(0)}}, client.GuardOptions{}, strings.Repeat(";,=q", 10000), 429, "application/problem+json", "3", "api"},
		"name is hostile":  {client.Decision{Limits: []respond.Limit{{Name: "a\r\nSet-Cookie: x=1", Count: 1, Denied: true}}}, client.GuardOptions{}, "", 429, "application/problem+json", "1", "a%0D%0ASet-Cookie"},
		"reason unspoken":  {client.Decision{Reason: "secret-identifier", Limits: []respond.Limit{overMinute(0)}}, client.GuardOptions{}, "", 429, "application/problem+json", "3", "api"},
		"degraded at most": {client.Decision{Degraded: true, Limits: []respond.Limit{overMinute(0)}}, client.GuardOptions{}, "", 429, "application/problem+json", "3", "api"},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Checker = &checker{answer: func(context.Context, client.Check) (client.Decision, error) { return test.decision, nil }}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if test.accept != "" {
				r.Header.Set("Accept", test.accept)
			}
			r.Header.Set("X-Request-Id", "<id>\r\n")
			response, served := serve(newGuard(t, test.options), r)
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			if served || response.StatusCode != test.status {
				t.Errorf("served: %t, status %d, want a refusal with %d", served, response.StatusCode, test.status)
			}
			if got := response.Header.Get("Content-Type"); !strings.HasPrefix(got, test.content) {
				t.Errorf("Content-Type: %s, want %s", got, test.content)
			}
			if got := response.Header.Get("Retry-After"); got != test.retry {
				t.Errorf("Retry-After: %q, want %q", got, test.retry)
			}
			if !strings.Contains(string(text), test.body) {
				t.Errorf("body %s, want %q in it", text, test.body)
			}
			if strings.Contains(string(text), "secret-identifier") || strings.Contains(string(text), "<id>") && test.content == "text/html" {
				t.Errorf("the body tells too much: %s", text)
			}
			if response.Header.Get("Cache-Control") != "no-store" || response.Header.Get("Vary") != "Accept" {
				t.Errorf("a cache may keep the denial: %v", response.Header)
			}
			for header, values := range response.Header {
				if strings.ContainsAny(header+strings.Join(values, ""), "\r\n\x00") {
					t.Errorf("header %q: %q breaks out", header, values)
				}
			}
			if strings.HasSuffix(test.content, "json") && !json.Valid(text) {
				t.Errorf("not JSON: %s", text)
			}
		})
	}
}

func TestMiddlewareFailure(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		answer func(context.Context, client.Check) (client.Decision, error)
		closed bool
		status int
		want   error
	}{
		"open":   {func(context.Context, client.Check) (client.Decision, error) { return client.Decision{}, broken }, false, 200, broken},
		"closed": {func(context.Context, client.Check) (client.Decision, error) { return client.Decision{}, broken }, true, 503, broken},
		"hanging, open": {func(ctx context.Context, _ client.Check) (client.Decision, error) {
			<-ctx.Done()
			return client.Decision{}, ctx.Err()
		}, false, 200, context.DeadlineExceeded},
		"hanging, closed": {func(ctx context.Context, _ client.Check) (client.Decision, error) {
			<-ctx.Done()
			return client.Decision{}, ctx.Err()
		}, true, 503, context.DeadlineExceeded},
		"denied and error": {func(context.Context, client.Check) (client.Decision, error) {
			return client.Decision{Limits: []respond.Limit{overMinute(0)}}, broken
		}, false, 200, broken},
	} {
		t.Run(name, func(t *testing.T) {
			var told error
			guard := newGuard(t, client.GuardOptions{
				Checker: &checker{answer: test.answer}, FailClosed: test.closed, Timeout: 10 * time.Millisecond,
				OnError: func(_ *client.Call, err error) { told = err },
			})
			response, served := serve(guard, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			defer response.Body.Close()
			if served != (test.status == 200) || response.StatusCode != test.status {
				t.Errorf("served: %t, status %d, want %d", served, response.StatusCode, test.status)
			}
			if !errors.Is(told, test.want) {
				t.Errorf("OnError was told %v, want %v", told, test.want)
			}
			if test.status == 503 && response.Header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After: %q, want 1", response.Header.Get("Retry-After"))
			}
		})
	}
}

// A client that hangs up while it is checked must not get to the handler uncounted, although the check fails open.
func TestMiddlewareDropsRequestsThatWereGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	guard := newGuard(t, client.GuardOptions{
		Checker: &checker{answer: func(ctx context.Context, _ client.Check) (client.Decision, error) {
			cancel()
			<-ctx.Done()
			return client.Decision{}, ctx.Err()
		}},
		OnError: func(_ *client.Call, err error) { t.Errorf("OnError was told %v", err) },
	})
	response, served := serve(guard, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	defer response.Body.Close()
	if served || response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("served: %t, status %d", served, response.StatusCode)
	}
}

func TestSkipCostAndDescribe(t *testing.T) {
	check := &checker{}
	get := func(options client.GuardOptions) {
		options.Checker = check
		response, served := serve(newGuard(t, options), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/items?n=5", nil))
		_ = response.Body.Close()
		if !served {
			t.Error("not served")
		}
	}
	get(client.GuardOptions{Skip: func(c *client.Call) bool { return c.HTTP.URL.Path == "/items" }})
	if check.count() != 0 {
		t.Error("a skipped request was checked")
	}
	get(client.GuardOptions{Cost: func(*client.Call) int64 { return 5 }})
	if got := check.last(t); got.Cost != 5 || got.Peek {
		t.Errorf("checked %+v, want cost 5", got)
	}
	for _, cost := range []int64{0, -3} { // giving back is not for clients
		get(client.GuardOptions{Cost: func(*client.Call) int64 { return cost }})
		if got := check.last(t); got.Cost != 0 || !got.Peek {
			t.Errorf("checked %+v, want a look", got)
		}
	}
	get(client.GuardOptions{
		Describe: func(c *client.Call) (client.Check, error) {
			return client.Check{RuleID: "r", Subject: c.HTTP.URL.RawQuery}, nil
		},
		Cost: func(*client.Call) int64 { return 2 },
	})
	if got := check.last(t); got.RuleID != "r" || got.Subject != "n=5" || got.Cost != 2 || got.Scope != "" {
		t.Errorf("checked %+v", got)
	}
	before := check.count()
	get(client.GuardOptions{Describe: func(*client.Call) (client.Check, error) { return client.Check{}, errors.New("no idea") }})
	if check.count() != before {
		t.Error("checked what could not be described")
	}
}

func TestMissingKeysShareOneCounter(t *testing.T) {
	check := &checker{}
	for name, options := range map[string]client.GuardOptions{
		"anonymous": {Key: client.ByHeader("X-Api-Key")},
		"nobody":    {Key: client.ByBearer(), NoKey: "nobody"},
	} {
		options.Checker = check
		response, _ := serve(newGuard(t, options), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		_ = response.Body.Close()
		if got := check.last(t).Identifier; got != name {
			t.Errorf("counted %q, want %q", got, name)
		}
	}
}

func TestGuardOptions(t *testing.T) {
	for name, options := range map[string]client.GuardOptions{
		"no checker": {Key: fixed("a")},
		"no key":     {Checker: &checker{}},
		"timeout":    {Checker: &checker{}, Key: fixed("a"), Timeout: -1},
		"status":     {Checker: &checker{}, Key: fixed("a"), QuotaStatus: 200},
	} {
		if _, err := client.NewGuard(options); !errors.Is(err, client.ErrGuardOptions) {
			t.Errorf("%s: got %v, want ErrGuardOptions", name, err)
		}
	}
}

// What a client sends goes through a real server and back onto the wire.
func TestMiddlewareOverARealConnection(t *testing.T) {
	guard := newGuard(t, client.GuardOptions{
		Checker: &checker{answer: deniedBy(respond.Limit{Name: "evil\r\nX-Injected: 1", Count: 1, Window: time.Second, Denied: true})},
	})
	server := httptest.NewServer(guard.Middleware(&handled{}))
	defer server.Close()
	var dialer net.Dialer
	connection, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "HEAD / HTTP/1.1\r\nHost: a\r\nX-Request-Id: <b>\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader := textproto.NewReader(bufio.NewReader(connection))
	line, err := reader.ReadLine()
	if err != nil || !strings.Contains(line, "429") {
		t.Fatalf("got %q, %v", line, err)
	}
	header, err := reader.ReadMIMEHeader()
	if err != nil || header.Get("X-Injected") != "" || header.Get("RateLimit-Policy") == "" {
		t.Errorf("got %v, %v", header, err)
	}
	if rest, err := io.ReadAll(reader.R); err != nil || len(rest) != 0 {
		t.Errorf("a HEAD request was answered with a body: %q, %v", rest, err)
	}
}
