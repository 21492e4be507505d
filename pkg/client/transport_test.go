package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/pkg/client"
)

// roundTripper is a server without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// body remembers whether it was closed.
type body struct {
	io.Reader
	closed atomic.Bool
}

func (b *body) Close() error { b.closed.Store(true); return nil }

func answer(r *http.Request, status int, headers ...string) *http.Response {
	response := &http.Response{
		StatusCode: status, Header: http.Header{}, Request: r, ContentLength: -1, Body: &body{Reader: strings.NewReader("text")},
	}
	for i := 0; i < len(headers); i += 2 {
		response.Header.Add(headers[i], headers[i+1])
	}
	return response
}

func newTransport(t *testing.T, options client.TransportOptions) *client.Transport {
	t.Helper()
	if options.Rand == nil {
		options.Rand = func() float64 { return 0 }
	}
	transport, err := client.NewTransport(options)
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

func newRequest(t *testing.T, method, url, content string) *http.Request {
	t.Helper()
	var reader io.Reader
	if content != "" {
		reader = strings.NewReader(content)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// trip does one round trip and returns the status and how long it took.
func trip(t *testing.T, transport http.RoundTripper, request *http.Request) (status int, took time.Duration) {
	t.Helper()
	start := time.Now()
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	return response.StatusCode, time.Since(start)
}

func TestRetryAfter(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a synctest bubble
	for name, test := range map[string]struct {
		status  int
		headers []string
		want    time.Duration
	}{
		"seconds":                     {429, []string{"Retry-After", "7"}, 7 * time.Second},
		"unavailable":                 {503, []string{"Retry-After", "7"}, 7 * time.Second},
		"zero":                        {429, []string{"Retry-After", "0"}, 0},
		"fraction":                    {429, []string{"Retry-After", "1.5"}, 2 * time.Second},
		"date":                        {429, []string{"Retry-After", start.Add(9 * time.Second).Format(http.TimeFormat)}, 9 * time.Second},
		"date in the past":            {429, []string{"Retry-After", start.Add(-time.Hour).Format(http.TimeFormat)}, 0},
		"date by the server's clock":  {429, []string{"Date", start.Add(time.Hour).Format(http.TimeFormat), "Retry-After", start.Add(time.Hour + 4*time.Second).Format(http.TimeFormat)}, 4 * time.Second},
		"garbage":                     {429, []string{"Retry-After", "soon"}, 0},
		"negative":                    {429, []string{"Retry-After", "-5"}, 0},
		"ietf instead":                {429, []string{"RateLimit", `"a";r=0;t=6`}, 6 * time.Second},
		"x-ratelimit instead":         {429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3"}, 3 * time.Second},
		"x-ratelimit since the epoch": {429, []string{"X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", fmt.Sprint(math.MaxInt32)}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				transport := newTransport(t, client.TransportOptions{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					if calls++; calls == 1 {
						return answer(r, test.status, test.headers...), nil
					}
					return answer(r, http.StatusOK), nil
				})})
				status, took := trip(t, transport, newRequest(t, http.MethodGet, "http://a/", ""))
				if test.want < 0 { // too long to wait for
					if status != test.status || took != 0 || calls != 1 {
						t.Errorf("status %d after %v and %d calls, want the refusal at once", status, took, calls)
					}
					return
				}
				if status != http.StatusOK || calls != 2 || took != test.want {
					t.Errorf("status %d after %v and %d calls, want 200 after %v and 2", status, took, calls, test.want)
				}
			})
		})
	}
}

func TestBackoffGrowsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []*body
		var waits []client.Wait
		transport := newTransport(t, client.TransportOptions{
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				response := answer(r, http.StatusServiceUnavailable)
				bodies = append(bodies, response.Body.(*body))
				return response, nil
			}),
			MaxRetries: 5, MinBackoff: time.Second, MaxBackoff: 4 * time.Second, MaxWait: time.Hour,
			Rand:   func() float64 { return 0.5 },
			OnWait: func(_ *http.Request, w client.Wait) { waits = append(waits, w) },
		})
		response, err := transport.RoundTrip(newRequest(t, http.MethodGet, "http://a/", ""))
		if err != nil || response.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("got %v, %v, want the last 503", response, err)
		}
		var want []client.Wait
		for i, d := range []time.Duration{time.Second / 2, time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second} {
			want = append(want, client.Wait{For: d, Status: 503, Retry: i + 1})
		}
		if !slices.Equal(waits, want) {
			t.Errorf("waited %v, want %v", waits, want)
		}
		if len(bodies) != 6 {
			t.Fatalf("sent %d times, want 6", len(bodies))
		}
		for i, b := range bodies[:5] {
			if !b.closed.Load() {
				t.Errorf("the body of response %d was left open", i)
			}
		}
		if bodies[5].closed.Load() {
			t.Error("the body of the response that the caller got is closed")
		}
		_ = response.Body.Close()
	})
}

func TestWhatIsRepeated(t *testing.T) {
	post := func(headers ...string) func(t *testing.T) *http.Request {
		return func(t *testing.T) *http.Request {
			r := newRequest(t, http.MethodPost, "http://a/", "content")
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			return r
		}
	}
	once := func(t *testing.T) *http.Request {
		r := newRequest(t, http.MethodPut, "http://a/", "content")
		r.GetBody = nil
		return r
	}
	for name, test := range map[string]struct {
		request func(*testing.T) *http.Request
		options client.TransportOptions
		want    int
	}{
		"get":                         {func(t *testing.T) *http.Request { return newRequest(t, http.MethodGet, "http://a/", "") }, client.TransportOptions{}, 4},
		"put":                         {func(t *testing.T) *http.Request { return newRequest(t, http.MethodPut, "http://a/", "content") }, client.TransportOptions{}, 4},
		"put that can be read once":   {once, client.TransportOptions{}, 1},
		"post":                        {post(), client.TransportOptions{}, 1},
		"post with a key":             {post("Idempotency-Key", "1"), client.TransportOptions{}, 4},
		"post, asked for":             {post(), client.TransportOptions{RetryAny: true}, 4},
		"once, asked for":             {once, client.TransportOptions{RetryAny: true}, 1},
		"get, retries off":            {func(t *testing.T) *http.Request { return newRequest(t, http.MethodGet, "http://a/", "") }, client.TransportOptions{MaxRetries: -1}, 1},
		"get, no waiting":             {func(t *testing.T) *http.Request { return newRequest(t, http.MethodGet, "http://a/", "") }, client.TransportOptions{MaxWait: -1}, 1},
		"get, more retries than wait": {func(t *testing.T) *http.Request { return newRequest(t, http.MethodGet, "http://a/", "") }, client.TransportOptions{MaxWait: 5 * time.Second, MaxRetries: 10}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				test.options.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
					calls++
					if r.Body != nil {
						text, err := io.ReadAll(r.Body)
						if err != nil || string(text) != "content" && r.ContentLength != 0 {
							t.Errorf("call %d read %q, %v", calls, text, err)
						}
						_ = r.Body.Close()
					}
					return answer(r, http.StatusTooManyRequests, "Retry-After", "2"), nil
				})
				status, _ := trip(t, newTransport(t, test.options), test.request(t))
				if status != http.StatusTooManyRequests || calls != test.want {
					t.Errorf("status %d after %d calls, want 429 after %d", status, calls, test.want)
				}
			})
		})
	}
}

func TestOtherAnswersAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{200, 301, 400, 402, 404, 500, 502, 504} {
			calls := 0
			transport := newTransport(t, client.TransportOptions{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				calls++
				return answer(r, status, "Retry-After", "5"), nil
			})})
			if got, took := trip(t, transport, newRequest(t, http.MethodGet, "http://a/", "")); got != status || took != 0 || calls != 1 {
				t.Errorf("status %d: got %d after %v and %d calls", status, got, took, calls)
			}
		}
		broken := errors.New("broken")
		transport := newTransport(t, client.TransportOptions{Base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, broken })})
		response, err := transport.RoundTrip(newRequest(t, http.MethodGet, "http://a/", ""))
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want the base's error", err)
		}
		if response != nil {
			_ = response.Body.Close()
			t.Error("got a response beside the error")
		}
	})
}

func TestContextEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := newTransport(t, client.TransportOptions{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			return answer(r, http.StatusTooManyRequests, "Retry-After", "10"), nil
		})})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		start := time.Now()
		response, err := transport.RoundTrip(newRequest(t, http.MethodGet, "http://a/", "").WithContext(ctx))
		if !errors.Is(err, context.Canceled) || time.Since(start) != 3*time.Second {
			t.Errorf("got %v after %v, want canceled after 3s", err, time.Since(start))
		}
		if response != nil {
			_ = response.Body.Close()
		}

		// A wait that the deadline would cut short is not begun, neither for a retry nor for pacing.
		for i := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			status, took := trip(t, transport, newRequest(t, http.MethodGet, "http://a/", "").WithContext(ctx))
			cancel()
			if status != http.StatusTooManyRequests || took != 0 {
				t.Errorf("request %d: got %d after %v, want 429 at once", i, status, took)
			}
		}
	})
}

func TestClosesTheBodyOfARequestThatIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := newTransport(t, client.TransportOptions{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			return answer(r, http.StatusOK, "RateLimit", `"a";r=0;t=10`), nil
		})})
		trip(t, transport, newRequest(t, http.MethodGet, "http://a/", ""))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		request := newRequest(t, http.MethodPost, "http://a/", "").WithContext(ctx)
		content := &body{Reader: strings.NewReader("content")}
		request.Body = content
		response, err := transport.RoundTrip(request)
		if !errors.Is(err, context.Canceled) || !content.closed.Load() {
			t.Errorf("got %v, body closed: %t; want canceled, and the body closed", err, content.closed.Load())
		}
		if response != nil {
			_ = response.Body.Close()
		}
	})
}

// fixedWindow is a server that counts in a window from its first request on, and tells in the given form.
type fixedWindow struct {
	quota  int
	window time.Duration
	tell   func(header http.Header, quota, window, remaining, reset int)

	mu      sync.Mutex
	start   time.Time
	used    int
	refused int
	times   []time.Duration
	began   time.Time
}

func (s *fixedWindow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	}
	if now.Sub(s.start) >= s.window {
		s.start, s.used = now, 0
	}
	s.times = append(s.times, now.Sub(s.began))
	status := http.StatusOK
	if s.used >= s.quota {
		status = http.StatusTooManyRequests
		s.refused++
	} else {
		s.used++
	}
	response := answer(r, status)
	s.tell(response.Header, s.quota, int(s.window.Seconds()), s.quota-s.used, int(math.Ceil((s.window - now.Sub(s.start)).Seconds())))
	return response, nil
}

// styles are the ways in which servers tell.
var styles = map[string]func(header http.Header, quota, window, remaining, reset int){
	"ietf": func(h http.Header, quota, window, remaining, reset int) {
		h.Set("RateLimit", fmt.Sprintf(`"other";r=1000;t=60, "api";r=%d;t=%d`, remaining, reset))
		h.Set("RateLimit-Policy", fmt.Sprintf(`"other";q=2000;w=60, "api";q=%d;w=%d`, quota, window))
	},
	"draft 07": func(h http.Header, quota, _, remaining, reset int) {
		h.Set("RateLimit", fmt.Sprintf(`limit=%d, remaining=%d, reset=%d`, quota, remaining, reset))
	},
	"draft 03": func(h http.Header, quota, window, remaining, reset int) {
		h.Set("RateLimit-Limit", fmt.Sprintf("%d, %d;w=%d", quota, quota, window))
		h.Set("RateLimit-Remaining", fmt.Sprint(remaining))
		h.Set("RateLimit-Reset", fmt.Sprint(reset))
	},
	"x-ratelimit": func(h http.Header, quota, _, remaining, reset int) {
		h.Set("X-RateLimit-Limit", fmt.Sprint(quota))
		h.Set("X-RateLimit-Remaining", fmt.Sprint(remaining))
		h.Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Unix()+int64(reset)))
	},
	"x-ratelimit in milliseconds": func(h http.Header, quota, _, remaining, reset int) {
		h.Set("X-RateLimit-Limit", fmt.Sprint(quota))
		h.Set("X-RateLimit-Remaining", fmt.Sprint(remaining))
		h.Set("X-RateLimit-Reset", fmt.Sprint(time.Now().UnixMilli()+int64(reset)*1000))
	},
}

func TestPacingKeepsBelowTheLimit(t *testing.T) {
	for name, tell := range styles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &fixedWindow{quota: 20, window: time.Minute, tell: tell}
				transport := newTransport(t, client.TransportOptions{Base: server, MaxWait: 2 * time.Minute, MaxPace: time.Minute})
				for range 45 {
					if status, _ := trip(t, transport, newRequest(t, http.MethodGet, "http://a/", "")); status != http.StatusOK {
						t.Fatalf("got %d", status)
					}
				}
				if server.refused != 0 {
					t.Errorf("%d requests were refused, want none", server.refused)
				}
				// 17 at once leave 3, which is less than a fifth: these are spread over the minute.
				if at := server.times[16]; at != 0 {
					t.Errorf("request 17 left at %v, want at once", at)
				}
				for i := 17; i < 20; i++ {
					if gap := server.times[i] - server.times[i-1]; gap < 10*time.Second && i > 17 {
						t.Errorf("request %d left %v after the one before, want it spread", i+1, gap)
					}
				}
				if at := server.times[20]; at < time.Minute || at > time.Minute+10*time.Second {
					t.Errorf("request 21 left at %v, want when the window is over", at)
				}
			})
		})
	}
}

func TestPacingOfManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fixedWindow{quota: 50, window: 10 * time.Second, tell: styles["ietf"]}
		transport := newTransport(t, client.TransportOptions{Base: server, MaxWait: time.Minute, MaxRetries: 10})
		var group sync.WaitGroup
		var served atomic.Int64
		for range 10 {
			group.Go(func() {
				for range 20 {
					if status, _ := trip(t, transport, newRequest(t, http.MethodGet, "http://a/", "")); status == http.StatusOK {
						served.Add(1)
					}
				}
			})
		}
		group.Wait()
		if served.Load() != 200 || server.refused > 36 { // 9 others may overtake an answer, in each of 4 windows
			t.Errorf("%d of 200 served, %d refused: want all, and few refusals", served.Load(), server.refused)
		}
		if took := server.times[len(server.times)-1]; took < 30*time.Second || took > 50*time.Second {
			t.Errorf("200 requests at 50 per 10s took %v, want about 30s to 50s", took)
		}
	})
}

func TestPacingCanBeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fixedWindow{quota: 5, window: time.Minute, tell: styles["ietf"]}
		transport := newTransport(t, client.TransportOptions{Base: server, NoPacing: true, MaxRetries: -1})
		start := time.Now()
		for range 10 {
			trip(t, transport, newRequest(t, http.MethodGet, "http://a/", ""))
		}
		if time.Since(start) != 0 || server.refused != 5 {
			t.Errorf("took %v with %d refused, want no pause and 5", time.Since(start), server.refused)
		}
	})
}

func TestHostsArePacedApartAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := newTransport(t, client.TransportOptions{MaxKeys: 2, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			return answer(r, http.StatusOK, "RateLimit", `"a";r=0;t=5`), nil
		})})
		took := func(host string) time.Duration {
			_, took := trip(t, transport, newRequest(t, http.MethodGet, "http://"+host+"/", ""))
			return took
		}
		for _, step := range []struct {
			host string
			want time.Duration
		}{
			{"a", 0},
			{"b", 0},
			{"a", 5 * time.Second},
			{"a", 5 * time.Second},
			{"b", 0}, // what it said is over
			{"b", 5 * time.Second},
			{"a", 0},
			{"c", 0},
			{"c", 5 * time.Second},
		} {
			if got := took(step.host); got != step.want {
				t.Errorf("host %s waited %v, want %v", step.host, got, step.want)
			}
		}
		// Three hosts with a living budget do not fit: the one that was not used for longest is forgotten.
		took("d")
		time.Sleep(time.Millisecond)
		took("e")
		time.Sleep(time.Millisecond)
		took("f")
		if got := took("d"); got != 0 {
			t.Errorf("the oldest host waited %v, want it forgotten", got)
		}
	})
}

func TestRetriesOverRealConnections(t *testing.T) {
	var calls, connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if calls.Add(1)%3 != 0 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, strings.Repeat("wait ", 1000), http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write(text)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	base := &http.Transport{}
	transport := newTransport(t, client.TransportOptions{Base: base})
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: transport, Timeout: time.Minute}
	for i := range 5 {
		content := fmt.Sprintf("content %d", i)
		request := newRequest(t, http.MethodPut, server.URL, content)
		response, err := web.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || string(text) != content {
			t.Errorf("got %d %q, %v; want 200 %q", response.StatusCode, text, err, content)
		}
	}
	if calls.Load() != 15 || connections.Load() != 1 {
		t.Errorf("%d calls over %d connections, want 15 over 1", calls.Load(), connections.Load())
	}
}

func TestTransportOptions(t *testing.T) {
	for name, options := range map[string]client.TransportOptions{
		"backoff":        {MinBackoff: -1},
		"backoff order":  {MinBackoff: time.Minute, MaxBackoff: time.Second},
		"pace":           {MaxPace: -1},
		"share":          {PaceBelow: 1.5},
		"share negative": {PaceBelow: -0.1},
		"share nan":      {PaceBelow: math.NaN()},
		"keys":           {MaxKeys: -1},
	} {
		if _, err := client.NewTransport(options); !errors.Is(err, client.ErrTransportOptions) {
			t.Errorf("%s: got %v, want ErrTransportOptions", name, err)
		}
	}
}
