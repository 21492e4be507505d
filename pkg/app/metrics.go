package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// serveMetrics shows metrics on a listener of their own, if the settings ask for one. It serves until everything else has
// been closed, so that a drain can be watched.
func (a *app) serveMetrics(ctx context.Context) error {
	address := a.config.Metrics.Address
	if address == "" {
		return nil
	}
	host, name, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("metrics.address: %w", err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", name)
	if err != nil {
		return fmt.Errorf("metrics.address: %w", err)
	}
	listener, err := listenTCP(ctx, host, port, "metrics.address")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+a.config.Metrics.Path, a.metrics.Handler())
	settings := &a.config.Server.HTTP
	server := &http.Server{
		Handler:           limitBody(int64(settings.MaxBodyBytes), mux),
		ReadHeaderTimeout: settings.ReadHeaderTimeout,
		ReadTimeout:       settings.ReadTimeout,
		WriteTimeout:      settings.WriteTimeout,
		IdleTimeout:       settings.IdleTimeout,
		MaxHeaderBytes:    settings.MaxHeaderBytes,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.logger.ErrorContext(ctx, "metrics are not served any more", "address", listener.Addr().String(), "error", err)
		}
	}()
	a.cleanup.add(func() {
		_ = server.Close()
		<-ended
	})
	return nil
}
