// Package wire speaks the frames of Kong's plugin socket: a length of four bytes, little-endian, and that many bytes.
//
// It takes the place of the go-pdk's own framing for its bounds and its number of system calls: frames that belong together
// leave in one write, and what a peer says about a length is not believed without limit.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// MaxFrame bounds the frames that are read: a plugin's config, or all headers of a request.
const MaxFrame = 16 << 20

// keepBuffer bounds the buffer that a connection keeps between frames.
const keepBuffer = 64 << 10

// ErrFrame is the error of a frame that is too large to be one.
var ErrFrame = errors.New("frame out of bounds")

// Conn is a connection with Kong. It is for one goroutine at a time. After an error it is of no more use.
type Conn struct {
	conn   net.Conn
	reader *bufio.Reader
	writer *bufio.Writer
	buffer []byte
	err    error
}

// New returns a Conn over conn.
func New(conn net.Conn) *Conn {
	return &Conn{conn: conn, reader: bufio.NewReaderSize(conn, 2<<10), writer: bufio.NewWriterSize(conn, 2<<10)}
}

// Err is the first error of the connection: nil while it works.
func (c *Conn) Err() error { return c.err }

// SetDeadline bounds all reads and writes from now on; the zero time does not.
func (c *Conn) SetDeadline(at time.Time) { _ = c.fail(c.conn.SetDeadline(at)) }

// ReadFrame reads one frame, valid until the next one is read.
func (c *Conn) ReadFrame() ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	var length [4]byte
	if _, err := io.ReadFull(c.reader, length[:]); err != nil {
		return nil, c.fail(err)
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > MaxFrame {
		return nil, c.fail(fmt.Errorf("%w: %d bytes, the most is %d", ErrFrame, n, MaxFrame))
	}
	if cap(c.buffer) < int(n) || cap(c.buffer) > keepBuffer && n <= keepBuffer {
		c.buffer = make([]byte, n)
	}
	c.buffer = c.buffer[:n]
	if _, err := io.ReadFull(c.reader, c.buffer); err != nil {
		return nil, c.fail(err)
	}
	return c.buffer, nil
}

// WriteFrame adds a frame to what the next Flush sends.
func (c *Conn) WriteFrame(frame []byte) {
	if c.err != nil {
		return
	}
	var length [4]byte
	binary.LittleEndian.PutUint32(length[:], uint32(len(frame)))
	_, err := c.writer.Write(length[:])
	if err == nil {
		_, err = c.writer.Write(frame)
	}
	_ = c.fail(err)
}

// Flush sends what was written.
func (c *Conn) Flush() error {
	if c.err != nil {
		return c.err
	}
	return c.fail(c.writer.Flush())
}

// Await returns once the peer has closed the connection, has sent something, or until the deadline. It gives the buffers
// back first, since many connections may wait for a while.
func (c *Conn) Await() {
	c.buffer, c.reader, c.writer = nil, nil, nil
	if c.err == nil {
		c.err = net.ErrClosed
		_, _ = c.conn.Read(make([]byte, 1))
	}
}

func (c *Conn) fail(err error) error {
	if err != nil && c.err == nil {
		c.err = err
	}
	return err
}
