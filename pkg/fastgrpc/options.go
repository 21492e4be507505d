package fastgrpc

import (
	"cmp"
	"crypto/tls"
	"time"
)

// Options are a Server's settings. The zero value is usable.
type Options struct {
	// TLS protects the connections; it must offer h2. nil: no TLS.
	TLS *tls.Config
	// MaxConnections is how many may be open at once; those beyond it are closed as soon as they come. Defaults to 16384.
	MaxConnections int
	// MaxConcurrentStreams is how many calls one connection may have under way. Defaults to 65536.
	MaxConcurrentStreams uint32
	// MaxMessageBytes is the size of a request. Defaults to 1 MiB. The unfinished requests of a connection may together
	// hold four times as much.
	MaxMessageBytes int
	// MaxHeaderListBytes is the size of a request's header, as RFC 9113 counts it. Defaults to 16 KiB.
	MaxHeaderListBytes uint32
	// KeepHeader names a field of the request's header that handlers want to know, in lower case. Empty: none.
	KeepHeader string
	// HandlerTimeout is the deadline of calls that bring none or a later one. Defaults to 10 s.
	HandlerTimeout time.Duration
	// HandshakeTimeout is the time to begin: TLS, preface and first settings. Defaults to 10 s.
	HandshakeTimeout time.Duration
	// RequestTimeout is the time to send a whole request, or a whole frame. Defaults to 30 s.
	RequestTimeout time.Duration
	// WriteTimeout is the time that a peer may take to read what is sent to it. Defaults to 20 s.
	WriteTimeout time.Duration
	// KeepaliveTime is the silence after which a peer is asked whether it is alive, and KeepaliveTimeout the time that it has
	// to answer. Default to 1 minute and 20 s.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// MaxConnectionIdle is the time without calls after which a connection is closed. 0: never.
	MaxConnectionIdle time.Duration
	// MaxConnectionAge is the age at which a connection is closed, give or take 10 %. 0: never. Calls under way have
	// MaxConnectionAgeGrace to end; 0: no limit.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// Answered is told about each batch that was handled: how long it took from its arrival. It must be quick and must not
	// keep calls. nil: nobody is.
	Answered func(path string, calls []Call, elapsed time.Duration)
	// Panicked is told about a panic of a handler, whose calls are answered codes.Internal. nil: nobody is.
	Panicked func(value any, stack []byte)
}

func (o *Options) setDefaults() {
	o.MaxConnections = cmp.Or(o.MaxConnections, 16<<10)
	o.MaxConcurrentStreams = cmp.Or(o.MaxConcurrentStreams, 64<<10)
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, 1<<20)
	o.MaxHeaderListBytes = cmp.Or(o.MaxHeaderListBytes, 16<<10)
	o.HandlerTimeout = cmp.Or(o.HandlerTimeout, 10*time.Second)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 10*time.Second)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 30*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 20*time.Second)
	o.KeepaliveTime = cmp.Or(o.KeepaliveTime, time.Minute)
	o.KeepaliveTimeout = cmp.Or(o.KeepaliveTimeout, 20*time.Second)
	if o.Answered == nil {
		o.Answered = func(string, []Call, time.Duration) {}
	}
	if o.Panicked == nil {
		o.Panicked = func(any, []byte) {}
	}
}
