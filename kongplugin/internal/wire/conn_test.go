package wire_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/weirhq/weir/kongplugin/internal/wire"
)

func pair(t *testing.T) (*wire.Conn, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return wire.New(ours), theirs
}

func TestFramesGoThrough(t *testing.T) {
	conn, peer := pair(t)
	go func() { _, _ = io.Copy(peer, peer) }() // an echo
	for _, size := range []int{0, 1, 4, 5000, 200_000, 3} {
		frame := make([]byte, size)
		for i := range frame {
			frame[i] = byte(i)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			conn.WriteFrame(frame)
			_ = conn.Flush()
		}()
		got, err := conn.ReadFrame()
		<-sent
		if err != nil || string(got) != string(frame) {
			t.Fatalf("a frame of %d bytes came back as %d bytes: %v", size, len(got), err)
		}
	}
}

// What a peer says about a length is not believed: the memory would be taken before a byte has come.
func TestHugeFrameIsRefused(t *testing.T) {
	conn, peer := pair(t)
	go func() { _, _ = peer.Write(binary.LittleEndian.AppendUint32(nil, wire.MaxFrame+1)) }()
	if _, err := conn.ReadFrame(); !errors.Is(err, wire.ErrFrame) {
		t.Errorf("error %v", err)
	}
	if !errors.Is(conn.Err(), wire.ErrFrame) || !errors.Is(conn.Flush(), wire.ErrFrame) {
		t.Error("the connection is used on")
	}
}

func TestDeadline(t *testing.T) {
	conn, _ := pair(t)
	conn.SetDeadline(time.Now().Add(-time.Second))
	var timeout net.Error
	if _, err := conn.ReadFrame(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("error %v", err)
	}
}

func TestAwaitEndsWithTheConnection(t *testing.T) {
	conn, peer := pair(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn.Await()
	}()
	_ = peer.Close()
	<-ended
	if _, err := conn.ReadFrame(); err == nil {
		t.Error("the connection is used on")
	}
}
