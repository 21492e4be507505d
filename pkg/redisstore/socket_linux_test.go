package redisstore

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// pair returns both ends of a connection, the first of them as a socket.
func pair(t *testing.T, network, address string) (here, there net.Conn) {
	t.Helper()
	if runtime.GOMAXPROCS(0) == 1 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := new(net.Dialer).DialContext(t.Context(), network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if there, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Close() })
	if here, err = direct(dialled); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	if _, ok := here.(*socket); !ok {
		t.Fatalf("a %T came back", here)
	}
	return here, there
}

func TestSocketIsAConnection(t *testing.T) {
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
				_, err := here.Write(sent)
				written <- err
			}()
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(here, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("read other bytes than were sent: %v", err)
			}
			if err := <-written; err != nil {
				t.Error(err)
			}
			_ = there.Close()
			if n, err := here.Read(got); !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %d, %v", n, err)
			}
		})
	}
}

func TestSocketKeepsItsDeadlines(t *testing.T) {
	here, _ := pair(t, "tcp", "127.0.0.1:0")
	if err := here.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := here.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	// Nobody reads at the other end.
	if _, err := here.Write(make([]byte, 64<<20)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("write: %v", err)
	}
}

func TestSocketIsClosedWhileItWaits(t *testing.T) {
	here, _ := pair(t, "tcp", "127.0.0.1:0")
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
