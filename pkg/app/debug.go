package app

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"

	"github.com/weirhq/weir/pkg/engine"
)

// debugEndpoints are what the debug port serves, in the order of their paths.
var debugEndpoints = []struct{ path, help string }{
	{"/debug/pprof/", "profiles of the process"},
	{"/debug/pprof/profile", "a profile of the processor time"},
	{"/debug/pprof/trace", "a trace of the execution"},
	{"/rlconfig", "the rules in force"},
	{"/stats", "the statistics"},
}

// serveDebug opens the debug port of server.envoyproxy_endpoints, if they are on. It serves until everything else has been closed,
// so that a drain can be watched.
func (a *app) serveDebug(ctx context.Context, limiter *engine.Limiter) error {
	settings := &a.config.Server
	if !settings.EnvoyproxyEndpoints {
		return nil
	}
	listener, err := listenTCP(ctx, cmp.Or(settings.DebugHost, settings.Host), settings.DebugPort, "server.debug_port")
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           limitBody(int64(settings.HTTP.MaxBodyBytes), a.debugHandler(limiter)),
		ReadHeaderTimeout: settings.HTTP.ReadHeaderTimeout,
		ReadTimeout:       settings.HTTP.ReadTimeout,
		WriteTimeout:      settings.HTTP.WriteTimeout,
		IdleTimeout:       settings.HTTP.IdleTimeout,
		MaxHeaderBytes:    settings.HTTP.MaxHeaderBytes,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.logger.ErrorContext(ctx, "the debug port is not served any more", "address", listener.Addr().String(), "error", err)
		}
	}()
	a.cleanup.add(func() {
		_ = server.Close()
		<-ended
	})
	a.logger.InfoContext(ctx, "serving the debug port", "address", listener.Addr().String())
	return nil
}

func (a *app) debugHandler(limiter *engine.Limiter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", text(func(w io.Writer) {
		for _, endpoint := range debugEndpoints {
			fmt.Fprintf(w, "%s: %s\n", endpoint.path, endpoint.help)
		}
	}))
	mux.HandleFunc("GET /stats", text(a.writeStats))
	mux.HandleFunc("GET /rlconfig", text(func(w io.Writer) {
		if table := limiter.Table(); table != nil {
			for _, line := range table.Listing() {
				_, _ = io.WriteString(w, line+"\n")
			}
		}
	}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// writeStats writes a line for each statistic, sorted by their names.
func (a *app) writeStats(w io.Writer) {
	if a.stats == nil {
		return
	}
	var line []byte
	a.stats.Each(func(name string, value uint64) {
		line = append(append(line[:0], name...), ": "...)
		line = append(strconv.AppendUint(line, value, 10), '\n')
		_, _ = w.Write(line)
	})
}

func text(write func(io.Writer)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		buffered := bufio.NewWriter(w)
		write(buffered)
		_ = buffered.Flush()
	}
}
