package app

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"path"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/k1s0"
)

// newHTTP makes the server of the REST API, health, metrics and profiles.
func (a *app) newHTTP(ready *readiness, service *envoy.Service, api *k1s0.Service) *http.Server {
	settings := &a.config.Server
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /readyz", ready)
	mux.Handle("GET /metrics", a.metrics.Handler())
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		mux.Handle(path, api.MethodNotAllowed(http.MethodGet, http.MethodHead))
	}
	if settings.EnvoyproxyEndpoints {
		mux.HandleFunc("GET /healthcheck", ready.healthcheck)
		mux.Handle("/healthcheck", api.MethodNotAllowed(http.MethodGet, http.MethodHead))
		mux.Handle("/json", a.jsonDecisions(service))
	}
	mux.Handle("/", api.Handler())
	if settings.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return &http.Server{
		Handler:           loopbackOnly("/debug/", limitBody(int64(settings.HTTP.MaxBodyBytes), a.traceHTTP(a.metrics.HTTP("server", a.logger, cleanOnly(mux, api.NotFound()))))),
		ReadHeaderTimeout: settings.HTTP.ReadHeaderTimeout,
		ReadTimeout:       settings.HTTP.ReadTimeout,
		WriteTimeout:      settings.HTTP.WriteTimeout,
		IdleTimeout:       settings.HTTP.IdleTimeout,
		MaxHeaderBytes:    settings.HTTP.MaxHeaderBytes,
	}
}

// cleanOnly answers paths with empty or dotted parts as not found. The mux would send clients elsewhere, with a page for
// people.
func cleanOnly(next, notFound http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clean := path.Clean(r.URL.Path); clean != r.URL.Path && clean+"/" != r.URL.Path {
			notFound.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func limitBody(limit int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		next.ServeHTTP(w, r)
	})
}

// loopbackOnly answers 404 to everyone but this machine's own processes on paths that begin with prefix. A request that a
// proxy on this machine passes on has a forwarding header, and does not count as local.
func loopbackOnly(prefix string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.Path) >= len(prefix) && r.URL.Path[:len(prefix)] == prefix && !local(r) {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() && r.Header.Get("X-Forwarded-For") == "" && r.Header.Get("Forwarded") == ""
}
