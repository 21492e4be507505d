package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirhq/weir/pkg/client"
	"github.com/weirhq/weir/pkg/respond"
)

// twoAnHour stands for a server: any Checker will do.
type twoAnHour struct{ used *int64 }

func (c twoAnHour) Check(context.Context, client.Check) (client.Decision, error) {
	*c.used++
	left := max(2-*c.used, 0)
	denied := *c.used > 2
	return client.Decision{Allowed: !denied, Limits: []respond.Limit{{
		Name: "users", Count: 2, Window: time.Hour, Remaining: left, ResetAfter: time.Hour, RetryAfter: time.Hour, Denied: denied,
	}}}, nil
}

// A service behind a proxy at 10.0.0.0/8 is limited by its clients' addresses. The Checker would be what New returns.
func ExampleNewGuard() {
	byAddress, err := client.ByAddress(client.AddressOptions{TrustedProxies: []string{"10.0.0.0/8"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := client.NewGuard(client.GuardOptions{Checker: twoAnHour{new(int64)}, Key: byAddress})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := guard.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))
	for range 3 {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil))
		fmt.Println(recorder.Code, recorder.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "users";r=1;t=3600
	// 200 "users";r=0;t=3600
	// 429 "users";r=0;t=3600
}

// An HTTP client that waits where its server asks it to.
func ExampleNewTransport() {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	transport, err := client.NewTransport(client.TransportOptions{MinBackoff: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(server.URL) //nolint:noctx // it is an example's
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = response.Body.Close()
	fmt.Println(response.StatusCode, "after", asked, "requests")
	// Output: 200 after 2 requests
}
