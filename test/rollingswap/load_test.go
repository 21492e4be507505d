package rollingswap

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
)

const (
	workers = 8
	// Limits by the year, whose windows hardly ever end while the test runs.
	limit       = 100
	steadyLimit = 700
	rules       = `
domain: edge
descriptors:
  - key: user
    value: steady
    rate_limit: {unit: year, requests_per_unit: 700}
  - key: user
    rate_limit: {unit: year, requests_per_unit: 100}
`
	// A user's requests come in a row, far more than its limit; each fifth request is of a user who is there all the time.
	perUser     = 160
	steadyShare = 5
)

// load sends requests until its context ends, and counts answers.
type load struct {
	url string

	mu       sync.Mutex
	sent     int
	users    int
	asked    map[string]int // of requests that were answered
	admitted map[string]int
	failed   map[int]int // answers other than 200 and 429 by their status, 0: none
}

func (l *load) run(ctx context.Context, t *testing.T) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	caller := &http.Client{Transport: transport}
	for ctx.Err() == nil {
		user := l.next()
		// A request is finished even if the load ends meanwhile.
		request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, l.url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("X-User", user)
		l.count(user, send(caller, request))
	}
}

func send(caller *http.Client, request *http.Request) int {
	response, err := caller.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0
	}
	return response.StatusCode
}

// next is the user of the next request.
func (l *load) next() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if l.sent%steadyShare == 0 {
		return "steady"
	}
	l.users++
	return "user-" + strconv.Itoa(l.users/perUser)
}

func (l *load) count(user string, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch status {
	case http.StatusOK:
		l.admitted[user]++
		l.asked[user]++
	case http.StatusTooManyRequests:
		l.asked[user]++
	default:
		l.failed[status]++
	}
}

// answered is the number of requests that have been answered.
func (l *load) answered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for _, n := range l.asked {
		total += n
	}
	return total
}
