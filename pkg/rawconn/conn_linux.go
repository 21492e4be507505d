//go:build linux && (amd64 || arm64)

package rawconn

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

var errUnread = errors.New("there is something to read that nobody asked for")

// Conn is a connection whose system calls the scheduler does not hear of. It may be used as any net.Conn, by several goroutines
// at once.
type Conn struct {
	net.Conn
	raw   syscall.RawConn
	read  transfer
	write transfer
	probe probe
}

// transfer is a read or a write under way. What the poller calls is kept with its arguments, so that none is made for each.
type transfer struct {
	mu    sync.Mutex
	left  []byte
	done  int
	errno syscall.Errno
	try   func(fd uintptr) (ready bool)
}

// New wraps a connection that the runtime polls: one of TCP or a unix socket. Any other is returned as it is, one under TLS too:
// wrap what TLS is put on.
func New(from net.Conn) net.Conn {
	polled, ok := from.(syscall.Conn)
	if !ok {
		return from
	}
	raw, err := polled.SyscallConn()
	if err != nil {
		return from // closed already, as the first use will say
	}
	c := &Conn{Conn: from, raw: raw}
	c.read.try, c.write.try, c.probe.try = c.read.receive, c.write.send, c.probe.peek
	return c
}

// receive reads once. It reports whether there is a result.
func (t *transfer) receive(fd uintptr) bool {
	for {
		n, errno := read(fd, t.left)
		switch errno {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		case 0:
			t.done = n
			return true
		default:
			t.errno = errno
			return true
		}
	}
}

// send writes until nothing is left. It reports whether there is a result.
func (t *transfer) send(fd uintptr) bool {
	for len(t.left) > 0 {
		n, errno := write(fd, t.left)
		switch errno {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		case 0:
			t.done += n
			t.left = t.left[n:]
		default:
			t.errno = errno
			return true
		}
	}
	return true
}

// Read reads what there is, and waits for something if there is nothing.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := c.transfer("read", &c.read, c.raw.Read, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Write writes all of p, unless it fails or the deadline passes.
func (c *Conn) Write(p []byte) (int, error) { return c.transfer("write", &c.write, c.raw.Write, p) }

func (c *Conn) transfer(op string, t *transfer, poll func(func(fd uintptr) bool) error, p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left, t.done, t.errno = p, 0, 0
	err := poll(t.try)
	t.left = nil
	switch {
	case err == nil && t.errno != 0:
		err = c.fault(op, os.NewSyscallError(op, t.errno))
	case err != nil:
		if wrapped := (*net.OpError)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		err = c.fault(op, err)
	}
	return t.done, err
}

// fault is an error as package net shows it.
func (c *Conn) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// probe is a look at a connection that reads nothing.
type probe struct {
	mu    sync.Mutex
	fault error
	try   func(fd uintptr)
}

func (p *probe) peek(fd uintptr) {
	var first [1]byte
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&first)), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0) //nolint:gosec // the kernel writes one byte
	switch {
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		p.fault = nil
	case errno != 0:
		p.fault = os.NewSyscallError("recvfrom", errno)
	case n == 0:
		p.fault = io.EOF
	default:
		p.fault = errUnread
	}
}

// Idle reports whether the connection can be used for the next request: nil if the other end has neither closed it nor sent
// anything, io.EOF if it has closed it. It does not wait.
func (c *Conn) Idle() error {
	c.probe.mu.Lock()
	defer c.probe.mu.Unlock()
	if err := c.raw.Control(c.probe.try); err != nil {
		return err
	}
	return c.probe.fault
}

// CloseWrite ends what is sent, and lets the other end go on sending.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return c.fault("close", errors.ErrUnsupported)
	}
	return half.CloseWrite()
}

// SyscallConn lends the descriptor.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }
