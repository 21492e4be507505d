package redisstore

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a connection that the runtime does not poll: who reads or writes waits in the kernel, with a thread of its own.
//
// To wait the usual way, a goroutine is parked, and its thread looks for other work, finds none, and sleeps; another thread that
// polls the network is woken by the answer, wakes the first, and one of them goes on with the goroutine. Redis answers in some
// ten microseconds, and all that costs more than its answer, in time and in processor time. There are few connections that are
// waited for at a time (maxFlights to a server), so they may have threads. The scheduler takes the processor of such a thread if
// there is other work, as it does with any system call that blocks.
//
// One goroutine may read while another one writes.
type socket struct {
	local, remote   net.Addr
	readBy, writeBy time.Time

	closed atomic.Bool
	mu     sync.RWMutex // held for reading while the descriptor is used
	fd     int
}

var (
	_ net.Conn     = (*socket)(nil)
	_ syscall.Conn = (*socket)(nil)
)

// direct returns the connection as a socket, or as it is where that would not help: a lone processor has to poll the network
// while somebody waits.
func direct(from net.Conn) (net.Conn, error) {
	polled, ok := from.(syscall.Conn)
	if !ok || runtime.GOMAXPROCS(0) == 1 {
		return from, nil
	}
	raw, err := polled.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{local: from.LocalAddr(), remote: from.RemoteAddr()}
	var dupErr error
	err = raw.Control(func(fd uintptr) { s.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, os.NewSyscallError("dup", dupErr)); err != nil {
		return nil, err
	}
	if err := from.Close(); err != nil { // which ends the polling, and not the connection, of which there is a second descriptor
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// use keeps the descriptor open until mu is released.
func (s *socket) use() error {
	s.mu.RLock()
	if s.closed.Load() {
		s.mu.RUnlock()
		return net.ErrClosed
	}
	return nil
}

// await waits for an event by a deadline; the zero time is none.
func (s *socket) await(event int16, by time.Time) error {
	var left unix.Timespec
	limit := &left
	if by.IsZero() {
		limit = nil
	} else if d := time.Until(by); d > 0 {
		left = unix.NsecToTimespec(int64(d))
	} else {
		return os.ErrDeadlineExceeded
	}
	events := [1]unix.PollFd{{Fd: int32(s.fd), Events: event}} //nolint:gosec // file descriptors are small
	n, err := unix.Ppoll(events[:], limit, nil)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return os.NewSyscallError("ppoll", err)
	case n == 0:
		return os.ErrDeadlineExceeded
	default:
		return nil
	}
}

func (s *socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.use(); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	for {
		if err := s.await(unix.POLLIN, s.readBy); err != nil {
			return 0, err
		}
		n, err := unix.Read(s.fd, p)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case s.closed.Load():
			return 0, net.ErrClosed
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (s *socket) Write(p []byte) (int, error) {
	if err := s.use(); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	written := 0
	for written < len(p) {
		n, err := unix.Write(s.fd, p[written:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			if err := s.await(unix.POLLOUT, s.writeBy); err != nil {
				return written, err
			}
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return written, os.NewSyscallError("write", err)
		default:
			written += n
		}
	}
	return written, nil
}

// Close ends the connection, and the waiting of those who read or write.
func (s *socket) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // it may be closed by the other end already
	s.mu.Lock()
	defer s.mu.Unlock()
	return os.NewSyscallError("close", unix.Close(s.fd))
}

func (s *socket) LocalAddr() net.Addr  { return s.local }
func (s *socket) RemoteAddr() net.Addr { return s.remote }

// SetDeadline counts, as the other two do, for what begins afterwards.
func (s *socket) SetDeadline(t time.Time) error {
	s.readBy, s.writeBy = t, t
	return nil
}

func (s *socket) SetReadDeadline(t time.Time) error {
	s.readBy = t
	return nil
}

func (s *socket) SetWriteDeadline(t time.Time) error {
	s.writeBy = t
	return nil
}

// SyscallConn lends the descriptor. Its Read and Write do not wait: they call the function once.
func (s *socket) SyscallConn() (syscall.RawConn, error) { return lent{s}, nil }

type lent struct{ socket *socket }

func (l lent) Control(f func(fd uintptr)) error {
	if err := l.socket.use(); err != nil {
		return err
	}
	defer l.socket.mu.RUnlock()
	f(uintptr(l.socket.fd))
	return nil
}

func (l lent) Read(f func(fd uintptr) bool) error { return l.Control(func(fd uintptr) { f(fd) }) }

func (l lent) Write(f func(fd uintptr) bool) error { return l.Control(func(fd uintptr) { f(fd) }) }
