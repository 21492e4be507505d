package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirhq/weir/pkg/rawconn"
)

// patience is how long an unanswered request has to wait until it says something about the connection.
const patience = 10 * time.Millisecond

var errStale = errors.New("the connection may be dead")

// dialer opens connections that know whether they can still be trusted. The pool asks each idle connection before it uses
// it again (through SyscallConn); one that cannot be trusted is closed. So a server that vanished without a word, behind a
// cable that was pulled, fails the requests that wait for it, and not one more request for each idle connection afterwards.
type dialer struct {
	net   net.Dialer
	tls   func() *tls.Config // the connection's own; nil: plain text
	epoch time.Time

	distrusted atomic.Int64 // connections opened before this moment are not used again
	mu         sync.Mutex
	peers      map[string]*peer // by address, those with open connections
}

// peer is an address with open connections.
type peer struct {
	open   int          // guarded by dialer.mu
	silent atomic.Int64 // when the latest request was sent that was not answered
}

func newDialer(config func() *tls.Config) *dialer {
	return &dialer{
		// Finds out in three quarters of a minute that the other end of an idle connection is gone.
		net:   net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}},
		tls:   config,
		epoch: time.Now(),
		peers: make(map[string]*peer),
	}
}

// now is a time that never goes back, in nanoseconds.
func (d *dialer) now() int64 { return int64(time.Since(d.epoch)) }

// distrust makes all open connections stale, because the server that they lead to is no longer the right one.
func (d *dialer) distrust() { d.distrusted.Store(d.now()) }

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := d.net.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	raw = rawconn.New(raw)
	c := &conn{Conn: raw, dialer: d, addr: addr, opened: d.now()}
	if c.idle, err = newIdleness(raw); err != nil {
		_ = raw.Close()
		return nil, err
	}
	if d.tls != nil {
		config := d.tls()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secure := tls.Client(raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		c.Conn = secure
	}
	c.heard.Store(d.now())
	d.mu.Lock()
	defer d.mu.Unlock()
	c.peer = d.peers[addr]
	if c.peer == nil {
		c.peer = new(peer)
		d.peers[addr] = c.peer
	}
	c.peer.open++
	return c, nil
}

// conn is a connection that remembers when it last heard from the server.
type conn struct {
	net.Conn
	idle   syscall.RawConn // by which the pool looks at the connection, under TLS if there is any
	dialer *dialer
	peer   *peer
	addr   string

	opened       int64
	heard, asked atomic.Int64 // times of the last read and write
	closed       atomic.Bool

	readBy, writeBy deadline
}

func (c *conn) Read(p []byte) (int, error) {
	if err := c.readBy.apply(c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	now := c.dialer.now()
	if n > 0 {
		c.heard.Store(now)
		return n, err
	}
	var timeout net.Error
	if asked := c.asked.Load(); errors.As(err, &timeout) && timeout.Timeout() && now-asked >= int64(patience) && asked > c.heard.Load() {
		for last := c.peer.silent.Load(); last < asked && !c.peer.silent.CompareAndSwap(last, asked); {
			last = c.peer.silent.Load()
		}
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.writeBy.apply(c.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	c.asked.Store(c.dialer.now())
	return c.Conn.Write(p)
}

// deadline is when reads, or writes, of a connection fail. The client sets three of them for each round trip, and each would move a
// timer of the runtime, which may wake a processor that sleeps. So one is kept that is not later than what was asked for, and not
// much earlier; and it is set when something is about to wait for it.
type deadline struct {
	wanted, set time.Time
}

// apply sees to it that set is right. It calls change only where that makes a difference.
func (d *deadline) apply(change func(time.Time) error) error {
	early := d.wanted.Sub(d.set)
	if d.wanted.Equal(d.set) || !d.set.IsZero() && !d.wanted.IsZero() && early >= 0 && early <= time.Until(d.wanted)/8 {
		return nil
	}
	if err := change(d.wanted); err != nil {
		return err
	}
	d.set = d.wanted
	return nil
}

// SetDeadline counts, as the other two do, for what begins afterwards; that may fail earlier by an eighth of the time that is left.
func (c *conn) SetDeadline(t time.Time) error {
	c.readBy.wanted, c.writeBy.wanted = t, t
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.readBy.wanted = t
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writeBy.wanted = t
	return nil
}

func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.dialer.mu.Lock()
		if c.peer.open--; c.peer.open == 0 {
			delete(c.dialer.peers, c.addr)
		}
		c.dialer.mu.Unlock()
	}
	return c.Conn.Close()
}

// SyscallConn is how the pool looks whether an idle connection was closed by the other end. It fails for a stale one.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if c.opened < c.dialer.distrusted.Load() || c.heard.Load() < c.peer.silent.Load() {
		return nil, errStale
	}
	return c.idle, nil
}

// idleness is a connection to the pool that looks at it. The pool means to peek at the socket in Read, by a system call that
// the scheduler hears of (see package rawconn); the connection does that better itself.
type idleness struct {
	syscall.RawConn
	conn interface{ Idle() error }
}

func newIdleness(from net.Conn) (syscall.RawConn, error) {
	polled, ok := from.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T cannot be looked at", from)
	}
	raw, err := polled.SyscallConn()
	if own, ok := from.(interface{ Idle() error }); ok && err == nil {
		return idleness{raw, own}, nil
	}
	return raw, err
}

func (i idleness) Read(func(fd uintptr) bool) error { return i.conn.Idle() }
