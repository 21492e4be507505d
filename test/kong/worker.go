package kong

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Kong/go-pdk/server/kong_plugin_protocol"
	"google.golang.org/protobuf/proto"
)

// luaTimeout is how long nginx waits for the plugin.
const luaTimeout = 60 * time.Second

// maxRuns ends an event that would be run again for ever.
const maxRuns = 20

// Worker is one nginx worker. It is safe for concurrent use: each request is a coroutine.
type Worker struct {
	t    testing.TB
	node *Node
	id   int

	mu        sync.Mutex
	sequence  int64
	pool      []net.Conn
	open      int // connections in use
	instances map[string]*claim
}

// Access runs the plugin's access phase for a request. The error wraps ErrFailed where Kong would give the client a 500.
func (w *Worker) Access(config *Config, request *Request) (*Response, error) {
	response := &Response{Headers: make(map[string]string), Finish: func() {}}
	for response.Runs < maxRuns {
		response.Runs++
		id, err := w.instance(config)
		if err == nil {
			err = w.event(id, request, response)
		}
		if !errors.Is(err, errClosed) {
			return response, err
		}
		w.forget(config)
	}
	return response, failed("the event was run %d times and always ended by %v", response.Runs, errClosed)
}

// instance returns the number of the config's instance, which it starts if there is none of the config as it is now.
func (w *Worker) instance(config *Config) (int32, error) {
	w.mu.Lock()
	c := w.instances[config.ID]
	if c == nil {
		c = &claim{}
		w.instances[config.ID] = c
	}
	w.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id != 0 && c.seq == config.Seq {
		return c.id, nil
	}
	before := c.id
	reply, err := w.call(&kong_plugin_protocol.RpcCall{Call: &kong_plugin_protocol.RpcCall_CmdStartInstance{
		CmdStartInstance: &kong_plugin_protocol.CmdStartInstance{Name: Name, Config: config.json()},
	}}, nil, nil)
	if err != nil {
		return 0, failed("starting instance: %v", err)
	}
	c.id, c.seq = reply.GetInstanceStatus().GetInstanceId(), config.Seq
	if before != 0 {
		_ = w.closeInstance(before) // Kong does not mind an error
	}
	return c.id, nil
}

func (w *Worker) closeInstance(id int32) error {
	_, err := w.call(&kong_plugin_protocol.RpcCall{Call: &kong_plugin_protocol.RpcCall_CmdCloseInstance{
		CmdCloseInstance: &kong_plugin_protocol.CmdCloseInstance{InstanceId: id},
	}}, nil, nil)
	return err
}

// CloseInstance closes a config's instance, as when the plugin is removed.
func (w *Worker) CloseInstance(config *Config) error {
	w.mu.Lock()
	c := w.instances[config.ID]
	delete(w.instances, config.ID)
	w.mu.Unlock()
	if c == nil {
		return nil
	}
	return w.closeInstance(c.id)
}

// forget is what Kong does after an error: the instances are not closed.
func (w *Worker) forget(*Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instances = make(map[string]*claim)
}

func (w *Worker) event(id int32, request *Request, response *Response) error {
	_, err := w.call(&kong_plugin_protocol.RpcCall{Call: &kong_plugin_protocol.RpcCall_CmdHandleEvent{
		CmdHandleEvent: &kong_plugin_protocol.CmdHandleEvent{InstanceId: id, EventName: "access"},
	}}, request, response)
	if errors.Is(err, errExited) {
		return nil
	}
	return err
}

// call makes one call on a pooled connection. request and response are those of an event, during which the plugin calls back.
func (w *Worker) call(call *kong_plugin_protocol.RpcCall, request *Request, response *Response) (*kong_plugin_protocol.RpcReturn, error) {
	conn, err := w.take()
	if err != nil {
		return nil, failed("trying to connect: %v", err)
	}
	keep := false
	defer func() {
		if !keep {
			w.drop(conn)
		}
	}()
	if err := conn.SetDeadline(time.Now().Add(luaTimeout)); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.sequence++
	call.Sequence = w.sequence
	w.mu.Unlock()
	text, err := proto.Marshal(call)
	if err != nil {
		return nil, err
	}
	if err := writeFrame(conn, text); err != nil {
		return nil, errClosed
	}
	if request != nil {
		err := w.bridge(conn, request, response)
		if errors.Is(err, errExited) {
			// The coroutine never gets on; nginx closes the connection at the end of the request.
			keep = true
			var once sync.Once
			response.Finish = func() { once.Do(func() { w.drop(conn) }) }
		}
		if err != nil {
			return nil, err
		}
	}
	frame, err := readFrame(conn)
	if err != nil {
		return nil, err
	}
	var reply kong_plugin_protocol.RpcReturn
	if err := proto.Unmarshal(frame, &reply); err != nil {
		return nil, failed("the reply cannot be read: %v", err)
	}
	if reply.GetSequence() != call.GetSequence() {
		return nil, failed("reply %d to call %d", reply.GetSequence(), call.GetSequence())
	}
	keep = true
	w.give(conn)
	return &reply, nil
}

// bridge answers the plugin's calls until the event ends.
func (w *Worker) bridge(conn net.Conn, request *Request, response *Response) error {
	for {
		frame, err := readFrame(conn)
		if err != nil {
			return err
		}
		if len(frame) == 0 {
			return nil
		}
		method := string(frame)
		args, err := readFrame(conn)
		if err != nil {
			return err
		}
		response.Calls = append(response.Calls, method)
		if response.Runs == 1 && len(response.Calls) == request.CutAt {
			return errClosed
		}
		reply, err := answer(method, args, request, response)
		if err != nil {
			if !errors.Is(err, errExited) {
				w.t.Errorf("%s: %v", method, err)
			}
			return err
		}
		if err := writeFrame(conn, reply); err != nil {
			return errClosed
		}
	}
}

func (w *Worker) take() (net.Conn, error) {
	w.mu.Lock()
	w.open++
	if n := len(w.pool); n > 0 {
		conn := w.pool[n-1]
		w.pool = w.pool[:n-1]
		w.mu.Unlock()
		return conn, nil
	}
	w.mu.Unlock()
	conn, err := w.node.connect()
	if err != nil {
		w.mu.Lock()
		w.open--
		w.mu.Unlock()
	}
	return conn, err
}

func (w *Worker) give(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	w.pool = append(w.pool, conn)
}

func (w *Worker) drop(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	_ = conn.Close()
}

// Conns is how many connections the worker has, pooled ones included.
func (w *Worker) Conns() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open + len(w.pool)
}

// Close closes the pooled connections.
func (w *Worker) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.pool {
		_ = conn.Close()
	}
	w.pool = nil
}

func readFrame(conn net.Conn) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, connectionError(err)
	}
	frame := make([]byte, binary.LittleEndian.Uint32(length[:]))
	_, err := io.ReadFull(conn, frame)
	return frame, connectionError(err)
}

// connectionError is an error as nginx calls it.
func connectionError(err error) error {
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET):
		return errClosed
	case errors.As(err, &timeout) && timeout.Timeout():
		return failed("timeout")
	default:
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
}

func writeFrame(conn net.Conn, frame []byte) error {
	text := binary.LittleEndian.AppendUint32(nil, uint32(len(frame)))
	_, err := conn.Write(append(text, frame...))
	return err
}
