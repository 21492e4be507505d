package client

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/weirhq/weir/pkg/respond"
)

// Middleware limits the requests to a handler: within the limit they get there, with the headers of the decision on the
// response; else they are answered with 429 (402 for a quota, 503 where FailClosed is set and the check failed) and a body in
// a form that the client accepts. A request that its client has given up while it was checked gets nowhere.
func (g *Guard) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := httpCall(r)
		decision, verdict := g.check(&call)
		switch verdict {
		case pass:
			next.ServeHTTP(w, r)
		case allowed:
			shown := decision.shown()
			g.writeHeaders(w, &shown)
			next.ServeHTTP(w, r)
		case denied:
			shown := decision.shown()
			g.writeHeaders(w, &shown)
			g.deny(w, r, &shown)
		case gone:
			// Nobody reads this, unless a handler around this one has set the deadline.
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

func (g *Guard) writeHeaders(w http.ResponseWriter, shown *respond.Decision) {
	var space [8]respond.Header
	for _, h := range g.options.Headers.Append(space[:0], shown, g.options.Now()) {
		w.Header()[http.CanonicalHeaderKey(h.Name)] = []string{h.Value}
	}
}

func (g *Guard) deny(w http.ResponseWriter, r *http.Request, shown *respond.Decision) {
	status := shown.Status(g.options.QuotaStatus)
	media := respond.Negotiate(strings.Join(r.Header.Values("Accept"), ", "), g.options.Media...)
	body := respond.Body{Status: status, Message: g.options.Message, RequestID: r.Header.Get("X-Request-Id")}
	text := body.Append(nil, media, shown)

	header := w.Header()
	header.Set("Content-Type", media.ContentType())
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("Cache-Control", "no-store") // RFC 6585, section 4: a 429 must not be cached
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept")
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that has gone needs no answer
}
