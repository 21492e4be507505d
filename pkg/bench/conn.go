package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

const (
	initialWindow = 65_535 // of HTTP/2, for streams and connections alike
	streamWindow  = 1 << 20
	receiveWindow = 1 << 30 // of the connection
	maxStreamID   = 1<<31 - 1
	bufferSize    = 64 << 10
	maxFrame      = 16 << 10 // the least that every peer must take
	unlimited     = 1 << 30
)

// stream is a call on its way.
type stream struct {
	start, sent int64 // when it should have been sent, and when it was; see clock
	answered    bool  // its headers have come
	status      string
	body        []byte
}

// conn is a connection. Its reader goroutine handles what the server sends; calls are written by whoever makes them; the
// lane's mutex guards what they share.
type conn struct {
	lane *lane
	net  net.Conn

	reader *bufio.Reader
	framer *http2.Framer // its reading half is the reader goroutine's own, its writing half is guarded

	// The reader goroutine's own.
	header    *headerReader
	block     []byte // of a header block in several frames
	blockEnds bool   // the stream ends with it

	// Guarded by lane.mu.
	writer     *bufio.Writer
	request    *requestHeader
	message    []byte
	streams    map[uint32]*stream
	nextID     uint32
	window     int64 // what the server takes on the connection
	perStream  int64 // and on a new stream
	maxStreams int
	consumed   uint32 // received since the window was last opened again
	draining   bool   // no new calls: the server sent GOAWAY, or stream IDs are used up
	closed     bool
	err        error // why it was closed
}

// dial connects and waits for the server's settings.
func dial(ctx context.Context, l *lane) (*conn, error) {
	var dialer net.Dialer
	address := l.load.target.Address
	socket, err := dialer.DialContext(ctx, address.network, address.address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	c := &conn{
		lane: l, net: socket,
		reader:  bufio.NewReaderSize(socket, bufferSize),
		writer:  bufio.NewWriterSize(socket, bufferSize),
		header:  newHeaderReader(),
		request: newRequestHeader(address.authority(), l.load.options.Timeout),
		streams: map[uint32]*stream{},
		nextID:  1, window: initialWindow, perStream: initialWindow, maxStreams: unlimited,
	}
	c.framer = http2.NewFramer(c.writer, c.reader)
	c.framer.SetReuseFrames()
	c.framer.SetMaxReadFrameSize(maxFrame)
	if err := c.shakeHands(ctx); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("%s does not speak HTTP/2 in plain text: %w", address, err)
	}
	return c, nil
}

func (c *conn) shakeHands(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.net.SetDeadline(deadline); err != nil {
			return err
		}
	}
	unhook := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) })
	defer unhook()
	if _, err := c.writer.WriteString(http2.ClientPreface); err != nil {
		return err
	}
	if err := errors.Join(
		c.framer.WriteSettings(
			http2.Setting{ID: http2.SettingEnablePush, Val: 0},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		),
		c.framer.WriteWindowUpdate(0, receiveWindow),
		c.writer.Flush(),
	); err != nil {
		return err
	}
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok || settings.IsAck() {
		return fmt.Errorf("it began with a %v frame instead of its settings", frame.Header().Type)
	}
	if err := c.settings(settings); err != nil {
		return err
	}
	if err := c.writer.Flush(); err != nil {
		return err
	}
	if !unhook() {
		return ctx.Err()
	}
	return c.net.SetDeadline(time.Time{})
}

// room tells whether a call can be written now.
func (c *conn) room() bool {
	return !c.draining && !c.closed && len(c.streams) < c.maxStreams && c.window >= int64(c.lane.load.frameSize)
}

// send writes a call. The caller has made sure that there is room.
func (c *conn) send(start int64) {
	id := c.nextID
	c.nextID += 2
	block, err := c.request.block()
	if err == nil {
		err = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
	}
	if err == nil {
		message := append(c.message[:0], 0, 0, 0, 0, 0)
		message = c.lane.draw(message)
		binary.BigEndian.PutUint32(message[1:], uint32(len(message)-messagePrefix)) //nolint:gosec // bounded by newRequests
		c.message = message
		err = c.framer.WriteData(id, true, message)
		c.window -= int64(len(message))
	}
	call := c.lane.newStream()
	call.start, call.sent = start, now()
	c.streams[id] = call
	if err != nil {
		c.fail(err)
	}
	if c.nextID > maxStreamID {
		c.drain()
	}
}

// fail closes the connection; its reader goroutine notices and reports the calls that are lost.
func (c *conn) fail(err error) {
	if !c.closed {
		c.closed, c.err = true, err
		_ = c.net.Close()
	}
}

func (c *conn) flush() {
	if c.closed || c.writer.Buffered() == 0 {
		return
	}
	if err := c.net.SetWriteDeadline(time.Now().Add(c.lane.load.options.Timeout)); err != nil {
		c.fail(err)
		return
	}
	if err := c.writer.Flush(); err != nil {
		c.fail(fmt.Errorf("write: %w", err))
	}
}

// drain lets the calls under way end; new ones go to another connection.
func (c *conn) drain() {
	c.draining = true
	if c.lane.conn == c {
		c.lane.conn = nil
		c.lane.redial()
	}
}

// read handles frames until the connection ends.
func (c *conn) read() {
	l := c.lane
	for {
		frame, err := c.framer.ReadFrame()
		l.mu.Lock()
		if err == nil {
			err = c.handle(frame)
		}
		if err == nil && c.reader.Buffered() == 0 {
			c.flush()
			l.flush()
		}
		if err != nil || c.draining && len(c.streams) == 0 {
			c.end(err)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

var errHungUp = errors.New("the server closed the connection")

// end gives up the connection and the calls on it.
func (c *conn) end(err error) {
	if c.err == nil {
		c.err = err
	}
	if errors.Is(c.err, io.EOF) || errors.Is(c.err, syscall.ECONNRESET) || errors.Is(c.err, syscall.EPIPE) {
		c.err = errHungUp
	}
	c.closed = true
	_ = c.net.Close()
	l := c.lane
	delete(l.conns, c)
	if l.conn == c {
		l.conn = nil
		l.redial()
	}
	for id, call := range c.streams {
		l.tally.faults.add(FaultLost, "%v", c.err)
		c.done(id, call)
	}
	l.flush()
}

func (c *conn) handle(frame http2.Frame) error {
	switch frame := frame.(type) {
	case *http2.HeadersFrame:
		return c.headers(frame.StreamID, frame.HeaderBlockFragment(), frame.HeadersEnded(), frame.StreamEnded())
	case *http2.ContinuationFrame:
		return c.headers(frame.StreamID, frame.HeaderBlockFragment(), frame.HeadersEnded(), c.blockEnds)
	case *http2.DataFrame:
		return c.data(frame)
	case *http2.RSTStreamFrame:
		if call := c.streams[frame.StreamID]; call != nil {
			c.lane.tally.faults.add(FaultReset, "the server reset the stream: %v", frame.ErrCode)
			c.done(frame.StreamID, call)
		}
	case *http2.WindowUpdateFrame:
		if frame.StreamID == 0 {
			c.window += int64(frame.Increment)
			c.lane.fill()
		}
	case *http2.SettingsFrame:
		if !frame.IsAck() {
			if err := c.settings(frame); err != nil {
				return err
			}
			c.lane.fill()
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			return c.framer.WritePing(true, frame.Data)
		}
	case *http2.GoAwayFrame:
		c.goAway(frame)
	case *http2.PushPromiseFrame:
		return errors.New("the server pushes, though it was told not to")
	}
	return nil
}

func (c *conn) settings(frame *http2.SettingsFrame) error {
	err := frame.ForeachSetting(func(setting http2.Setting) error {
		if err := setting.Valid(); err != nil {
			return err
		}
		switch setting.ID {
		case http2.SettingMaxConcurrentStreams:
			c.maxStreams = int(min(setting.Val, unlimited))
		case http2.SettingHeaderTableSize:
			c.request.limit(setting.Val)
		case http2.SettingInitialWindowSize:
			c.perStream = int64(setting.Val)
		default:
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case c.perStream < int64(c.lane.load.frameSize):
		return fmt.Errorf("the server takes %d bytes on a new stream, too few for a request of %d", c.perStream, c.lane.load.frameSize)
	default:
		return c.framer.WriteSettingsAck()
	}
}

// goAway lets the calls that the server has begun end, and makes the others on another connection.
func (c *conn) goAway(frame *http2.GoAwayFrame) {
	if frame.ErrCode != http2.ErrCodeNo {
		c.err = fmt.Errorf("the server sent GOAWAY: %v %s", frame.ErrCode, frame.DebugData())
	}
	for id, call := range c.streams {
		if id > frame.LastStreamID {
			delete(c.streams, id)
			c.lane.waiting.push(call.start)
			c.lane.free(call)
		}
	}
	if !c.draining {
		c.drain()
	}
	c.lane.fill()
}

// headers handles a header block or a piece of it.
func (c *conn) headers(id uint32, fragment []byte, ended, streamEnds bool) error {
	if !ended || len(c.block) > 0 {
		if len(c.block)+len(fragment) > maxHeaderBlock {
			return errHeaderTooLarge
		}
		c.block, c.blockEnds = append(c.block, fragment...), streamEnds
		if !ended {
			return nil
		}
		fragment = c.block
	}
	found, err := c.header.read(fragment)
	c.block = c.block[:0]
	if err != nil {
		return err
	}
	call := c.streams[id]
	if call == nil {
		return nil // of a call given up
	}
	if !call.answered {
		call.answered, call.status = true, found.status
	}
	if !streamEnds {
		return nil
	}
	c.lane.judge(call, found)
	c.done(id, call)
	return nil
}

// data handles a piece of a reply, nearly always all of it.
func (c *conn) data(frame *http2.DataFrame) error {
	if c.consumed += frame.Length; c.consumed >= receiveWindow/2 {
		if err := c.framer.WriteWindowUpdate(0, c.consumed); err != nil {
			return err
		}
		c.consumed = 0
	}
	call := c.streams[frame.StreamID]
	if call == nil {
		return nil
	}
	if len(call.body)+len(frame.Data()) > maxReply {
		return fmt.Errorf("a reply has more than %d bytes", maxReply)
	}
	call.body = append(call.body, frame.Data()...)
	if frame.StreamEnded() {
		c.lane.tally.faults.add(FaultStatus, "the reply ended without a gRPC status")
		c.done(frame.StreamID, call)
	}
	return nil
}

// done ends a call, however it went, and lets its caller make the next one.
func (c *conn) done(id uint32, call *stream) {
	delete(c.streams, id)
	c.lane.free(call)
	c.lane.next()
	c.lane.fill()
}
