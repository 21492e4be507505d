package servers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// maxUpstreamBody bounds what a request may ask an upstream to answer.
const maxUpstreamBody = 16 << 20

// UpstreamServer is the service behind a gateway. It counts the requests that reach it and answers each with what it got.
type UpstreamServer struct {
	server   *httptest.Server
	requests atomic.Int64
}

// Echo is what an UpstreamServer answers, as JSON.
type Echo struct {
	Method string      `json:"method"`
	Path   string      `json:"path"` // with its query, as it arrived
	Host   string      `json:"host"`
	Header http.Header `json:"header"`
}

// Upstream starts an HTTP server that answers each request with an Echo. A request may ask for another answer by its query:
// status=503, or bytes=1000 for a body of that size.
func Upstream(t testing.TB) *UpstreamServer {
	t.Helper()
	s := &UpstreamServer{}
	s.server = httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(s.server.Close)
	return s
}

// Addr is the server's host:port.
func (s *UpstreamServer) Addr() string { return strings.TrimPrefix(s.server.URL, "http://") }

// Requests is the number of requests that have arrived.
func (s *UpstreamServer) Requests() int64 { return s.requests.Load() }

func (s *UpstreamServer) answer(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	query := r.URL.Query()
	status := http.StatusOK
	if text := query.Get("status"); text != "" {
		var err error
		if status, err = strconv.Atoi(text); err != nil || status < 200 || status > 599 {
			http.Error(w, "status: write 200 to 599", http.StatusBadRequest)
			return
		}
	}
	var body []byte
	if text := query.Get("bytes"); text != "" {
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 || size > maxUpstreamBody {
			http.Error(w, "bytes: write 0 to "+strconv.Itoa(maxUpstreamBody), http.StatusBadRequest)
			return
		}
		body = []byte(strings.Repeat("x", size))
		w.Header().Set("Content-Type", "text/plain")
	} else {
		var err error
		if body, err = json.Marshal(Echo{Method: r.Method, Path: r.RequestURI, Host: r.Host, Header: r.Header}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}
