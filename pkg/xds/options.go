package xds

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/tlsfile"
)

// Options are a Client's settings. Server and NodeID must be set.
type Options struct {
	// Server is HOST:PORT of the control plane.
	Server string
	// NodeID and NodeMetadata tell the control plane whose rules to send.
	NodeID       string
	NodeMetadata map[string]string
	// Headers are sent when a stream is opened. Their values may be secret, and are not logged.
	Headers map[string]string
	// ConnectRetry is the time between two attempts while the control plane cannot be reached, give or take half of it. Defaults to
	// 1 s.
	ConnectRetry time.Duration
	// Backoff is the time between two streams.
	Backoff Backoff
	// MaxMessageBytes bounds a response. Defaults to 32 MiB.
	MaxMessageBytes int
	// TLS protects the connection. nil: nothing does.
	TLS *tlsfile.Client
	// Rules are how the rules are compiled.
	Rules rules.Options
	// Observer is told what happens. nil: nobody is.
	Observer Observer
	// Logger is told what an operator should know. Defaults to slog.Default().
	Logger *slog.Logger
}

// Observer is told what happens, for metrics. It must be safe for concurrent use and must not block.
type Observer interface {
	// ControlPlaneUp is called with whether there is a stream.
	ControlPlaneUp(up bool)
	// ControlPlaneResponse is called for each response, with whether its rules are in force: if not, those before stay.
	ControlPlaneResponse(accepted bool)
}

type unobserved struct{}

func (unobserved) ControlPlaneUp(bool)       {}
func (unobserved) ControlPlaneResponse(bool) {}

const (
	defaultConnectRetry    = time.Second
	defaultMaxMessageBytes = 32 << 20
)

func (o Options) withDefaults() Options {
	o.ConnectRetry = cmp.Or(o.ConnectRetry, defaultConnectRetry)
	o.Backoff = o.Backoff.withDefaults()
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, defaultMaxMessageBytes)
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}
