package rulestore

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// keepAlive notices within 20 s that the machine at the other end is gone, also where no call waits for an answer.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// lines knows the network connections that are open. The driver says goodbye to a server that does not answer in the
// background for up to 15 s; cut ends that together with the store.
type lines struct {
	dialer net.Dialer

	mu   sync.Mutex
	open map[*line]struct{} // nil once cut
}

type line struct {
	net.Conn
	lines *lines
}

func newLines() *lines {
	return &lines{dialer: net.Dialer{KeepAliveConfig: keepAlive}, open: make(map[*line]struct{})}
}

func (l *lines) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := l.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	opened := &line{Conn: conn, lines: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		return nil, errors.Join(errClosed, conn.Close())
	}
	l.open[opened] = struct{}{}
	return opened, nil
}

// Close implements net.Conn.
func (l *line) Close() error {
	l.lines.mu.Lock()
	delete(l.lines.open, l)
	l.lines.mu.Unlock()
	return l.Conn.Close()
}

// cut closes every connection and refuses new ones.
func (l *lines) cut() {
	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for line := range open {
		_ = line.Conn.Close() // its user sees the error
	}
}
