//go:build linux && (amd64 || arm64)

package rawconn_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/rawconn"
)

// pair returns both ends of a connection, wrapped as those who dial and those who listen do it.
func pair(t *testing.T, network, address string) (here, there net.Conn) {
	t.Helper()
	plain, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	listener := rawconn.Listener(plain)
	defer listener.Close()
	dialled, err := new(net.Dialer).DialContext(t.Context(), network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here = rawconn.New(dialled)
	t.Cleanup(func() { _ = here.Close() })
	if there, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Close() })
	for _, end := range []net.Conn{here, there} {
		if _, ok := end.(*rawconn.Conn); !ok {
			t.Fatalf("a %T came back", end)
		}
	}
	return here, there
}

func tcp(t *testing.T) (here, there net.Conn) {
	t.Helper()
	return pair(t, "tcp", "127.0.0.1:0")
}

func TestConnIsAConnection(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			here, there := pair(t, network, address)
			if here.RemoteAddr().String() != there.LocalAddr().String() {
				t.Errorf("it leads to %v, want %v", here.RemoteAddr(), there.LocalAddr())
			}
			// More than the buffers of both ends hold, so that it has to wait for room.
			sent := bytes.Repeat([]byte("0123456789"), 1<<20)
			go func() { _, _ = io.Copy(there, there) }()
			written := make(chan error, 1)
			go func() {
				n, err := here.Write(sent)
				if n != len(sent) {
					t.Errorf("%d bytes of %d written", n, len(sent))
				}
				written <- err
			}()
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(here, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("read other bytes than were sent: %v", err)
			}
			if err := <-written; err != nil {
				t.Error(err)
			}
			if n, err := here.Read(nil); n != 0 || err != nil {
				t.Errorf("a read of nothing: %d, %v", n, err)
			}
			_ = there.Close()
			if n, err := here.Read(got); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %d, %v", n, err)
			}
		})
	}
}

// What several goroutines write at once does not get mixed, whatever has to wait for room.
func TestConnIsSharedByWriters(t *testing.T) {
	here, there := tcp(t)
	const writers, size = 8, 1 << 20
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			if _, err := here.Write(bytes.Repeat([]byte{byte('a' + i)}, size)); err != nil {
				t.Error(err)
			}
		})
	}
	seen := map[byte]bool{}
	got := make([]byte, size)
	for range writers {
		if _, err := io.ReadFull(there, got); err != nil {
			t.Fatal(err)
		}
		if seen[got[0]] || strings.Trim(string(got), string(got[0])) != "" {
			t.Fatal("two writes are mixed")
		}
		seen[got[0]] = true
	}
	group.Wait()
}

func TestConnKeepsItsDeadlines(t *testing.T) {
	here, there := tcp(t)
	if err := here.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := here.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	// Nobody reads at the other end.
	if n, err := here.Write(make([]byte, 64<<20)); n >= 64<<20 || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("write: %d, %v", n, err)
	}
	if err := here.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := here.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("without a deadline: %d, %v", n, err)
	}
}

func TestConnIsClosedWhileItWaits(t *testing.T) {
	here, _ := tcp(t)
	ended := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		_, err := here.Read(make([]byte, 1))
		ended <- err
	}()
	<-begun
	if err := here.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if err := here.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the second Close: %v", err)
	}
	if _, err := here.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
}

// An error says what package net's says.
func TestConnNamesItsErrors(t *testing.T) {
	here, there := tcp(t)
	if err := there.(*rawconn.Conn).Conn.(*net.TCPConn).SetLinger(0); err != nil { //nolint:forcetypeassert // it is TCP
		t.Fatal(err)
	}
	_ = there.Close() // by a reset
	_, err := here.Read(make([]byte, 1))
	want := "read tcp " + here.LocalAddr().String() + "->" + here.RemoteAddr().String() + ": read: connection reset by peer"
	if !errors.Is(err, syscall.ECONNRESET) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := here.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write: %v", err)
	}
}

func TestHalfClosed(t *testing.T) {
	here, there := tcp(t)
	if err := here.(*rawconn.Conn).CloseWrite(); err != nil { //nolint:forcetypeassert // pair has looked
		t.Fatal(err)
	}
	if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other end reads %v", err)
	}
	if _, err := there.Write([]byte("still")); err != nil {
		t.Error(err)
	}
	if n, err := here.Read(make([]byte, 8)); n != 5 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
}

func TestIdle(t *testing.T) {
	one, other := tcp(t)
	here := one.(*rawconn.Conn) //nolint:forcetypeassert // pair has looked
	if err := here.Idle(); err != nil {
		t.Errorf("at the beginning: %v", err)
	}
	if _, err := other.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	arrived(t, here)
	if err := here.Idle(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("with something to read: %v", err)
	}
	if n, err := here.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("it has read what it looked at: %d, %v", n, err)
	}
	if err := here.Idle(); err != nil {
		t.Errorf("once it is read: %v", err)
	}
	_ = other.Close()
	arrived(t, here)
	if err := here.Idle(); !errors.Is(err, io.EOF) {
		t.Errorf("closed by the other end: %v", err)
	}
	_ = here.Close()
	if err := here.Idle(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed here: %v", err)
	}
}

// arrived waits until there is something to read, without reading it.
func arrived(t *testing.T, here *rawconn.Conn) {
	t.Helper()
	raw, err := here.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Read(func(fd uintptr) bool {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT) //nolint:gosec // descriptors are small
		return n >= 0 && !errors.Is(err, syscall.EAGAIN)
	}); err != nil {
		t.Fatal(err)
	}
}

// What has no descriptor stays as it is.
func TestOtherConnections(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	defer here.Close()
	if rawconn.New(here) != here {
		t.Error("a pipe was wrapped")
	}
}

// A round trip allocates nothing.
func TestNothingIsAllocated(t *testing.T) {
	here, there := tcp(t)
	buffer := make([]byte, 64)
	conn := here.(*rawconn.Conn) //nolint:forcetypeassert // pair has looked
	if n := testing.AllocsPerRun(100, func() {
		if err := conn.Idle(); err != nil {
			t.Error(err)
		}
		_, _ = here.Write(buffer)
		_, _ = io.ReadFull(there, buffer)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRoundTrip compares a small question and answer with those of package net.
func BenchmarkRoundTrip(b *testing.B) {
	for _, wrapped := range []bool{false, true} {
		name := "net"
		if wrapped {
			name = "rawconn"
		}
		b.Run(name, func(b *testing.B) {
			listener, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer listener.Close()
			here, err := new(net.Dialer).DialContext(b.Context(), "tcp", listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer here.Close()
			there, err := listener.Accept()
			if err != nil {
				b.Fatal(err)
			}
			if wrapped {
				here, there = rawconn.New(here), rawconn.New(there)
			}
			go func() {
				defer there.Close()
				_, _ = io.CopyBuffer(struct{ io.Writer }{there}, struct{ io.Reader }{there}, make([]byte, 64))
			}()
			buffer := make([]byte, 64)
			for b.Loop() {
				if _, err := here.Write(buffer); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(here, buffer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
