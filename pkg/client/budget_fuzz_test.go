package client_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/pkg/client"
)

// Whatever a server sends, a request ends within MaxWait, is sent a bounded number of times, and gets the server's response.
func FuzzTransportHeaders(f *testing.F) {
	for _, seed := range [][4]string{
		{"5", "", "", ""},
		{"Sat, 01 Jan 2000 00:00:05 GMT", "Fri, 31 Dec 1999 00:00:00 GMT", "", ""},
		{"-1", "", `"a";r=0;t=30, "b";r=5;t=1`, `"a";q=10;w=60`},
		{"999999999999999999999", "", `"a";r=-1;t=99999999999999`, ""},
		{"", "", "limit=1, remaining=0, reset=9", ""},
		{"", "", `(1 2);r=1, :aGk=:;r=0;t=1, 1.5;r=0`, `:aGk=:;q=1;w=1`},
		{"1e9", "x", `"a";r`, `"a";q=0;w=0`},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], "1", "2", "3")
	}
	f.Add("", "", "", "", "100, 100;w=60", "0", "30")
	f.Add("", "", "", "", "0;w=;w=9999999999999999999", "18446744073709551615", "946684805000")
	f.Fuzz(func(t *testing.T, retryAfter, date, rateLimit, policy, limit, remaining, reset string) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			transport, err := client.NewTransport(client.TransportOptions{
				MaxWait: time.Minute,
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					calls++
					return answer(r, http.StatusTooManyRequests, "Retry-After", retryAfter, "Date", date, "RateLimit", rateLimit,
						"RateLimit-Policy", policy, "RateLimit-Limit", limit, "RateLimit-Remaining", remaining, "RateLimit-Reset", reset,
						"X-RateLimit-Limit", limit, "X-RateLimit-Remaining", remaining, "X-RateLimit-Reset", reset), nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				calls = 0
				status, took := trip(t, transport, newRequest(t, http.MethodGet, "http://a/", ""))
				if status != http.StatusTooManyRequests || took < 0 || took > time.Minute || calls < 1 || calls > 4 {
					t.Errorf("got %d after %v and %d calls", status, took, calls)
				}
			}
		})
	})
}
