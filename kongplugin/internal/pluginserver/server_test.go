package pluginserver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Kong/go-pdk/server/kong_plugin_protocol"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/kongplugin/internal/pdk"
	"github.com/weirhq/weir/kongplugin/internal/pluginserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plugin is one whose handler is the test's.
type plugin struct {
	access          func(*pdk.Kong)
	started, closed atomic.Int64
}

func (p *plugin) Start([]byte) pluginserver.Instance {
	p.started.Add(1)
	return &instance{p}
}

type instance struct{ plugin *plugin }

func (i *instance) Access(kong *pdk.Kong) { i.plugin.access(kong) }
func (i *instance) Close()                { i.plugin.closed.Add(1) }

// buffer is a log that may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

type fixture struct {
	t      *testing.T
	path   string
	log    *buffer
	cancel context.CancelFunc
	ended  chan error
}

func serve(t *testing.T, p *plugin, options pluginserver.Options) *fixture {
	t.Helper()
	f := &fixture{t: t, path: filepath.Join(t.TempDir(), "s"), log: &buffer{}, ended: make(chan error, 1)}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	options.Name, options.Logger = "p", slog.New(slog.NewTextHandler(f.log, nil))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	f.cancel = cancel
	go func() { f.ended <- pluginserver.New(p, options).Serve(ctx, listener) }()
	t.Cleanup(f.stop)
	return f
}

// stop ends the server and waits for it; more than once does nothing.
func (f *fixture) stop() {
	f.cancel()
	select {
	case err, ok := <-f.ended:
		if ok && err != nil {
			f.t.Errorf("Serve: %v", err)
		}
		if ok {
			close(f.ended)
		}
	case <-time.After(20 * time.Second):
		f.t.Error("the server does not end")
	}
}

// client is a connection as Kong's.
type client struct {
	t *testing.T
	net.Conn
}

func (f *fixture) dial() *client {
	f.t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(f.t.Context(), "unix", f.path)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	return &client{f.t, conn}
}

func (c *client) send(frame []byte) {
	c.t.Helper()
	if _, err := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) call(call *kong_plugin_protocol.RpcCall) {
	c.t.Helper()
	text, err := proto.Marshal(call)
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(text)
}

func (c *client) frame() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.LittleEndian.Uint32(length[:]))
	_, err := io.ReadFull(c, frame)
	return frame, err
}

func (c *client) reply() *kong_plugin_protocol.RpcReturn {
	c.t.Helper()
	frame, err := c.frame()
	if err != nil {
		c.t.Fatal(err)
	}
	var reply kong_plugin_protocol.RpcReturn
	if err := proto.Unmarshal(frame, &reply); err != nil {
		c.t.Fatal(err)
	}
	return &reply
}

func (c *client) start() int32 {
	c.t.Helper()
	c.call(&kong_plugin_protocol.RpcCall{Sequence: 1, Call: &kong_plugin_protocol.RpcCall_CmdStartInstance{
		CmdStartInstance: &kong_plugin_protocol.CmdStartInstance{Name: "p", Config: []byte(`{}`)},
	}})
	return c.reply().GetInstanceStatus().GetInstanceId()
}

func (c *client) event(id int32, name string) {
	c.t.Helper()
	c.call(&kong_plugin_protocol.RpcCall{Sequence: 7, Call: &kong_plugin_protocol.RpcCall_CmdHandleEvent{
		CmdHandleEvent: &kong_plugin_protocol.CmdHandleEvent{InstanceId: id, EventName: name},
	}})
}

// passed reads the end of an event that was let pass.
func (c *client) passed() {
	c.t.Helper()
	if frame, err := c.frame(); err != nil || len(frame) != 0 {
		c.t.Fatalf("the event ended with %q, %v", frame, err)
	}
	if reply := c.reply(); reply.GetSequence() != 7 {
		c.t.Fatalf("reply %v", reply)
	}
}

func (c *client) closed() {
	c.t.Helper()
	if frame, err := c.frame(); err == nil {
		c.t.Fatalf("%q was sent instead of an end", frame)
	}
}

// A panic is one request's, and Kong must not run it again: the connection stays.
func TestPanicIsOneRequests(t *testing.T) {
	p := &plugin{access: func(*pdk.Kong) { panic("oops") }}
	f := serve(t, p, pluginserver.Options{})
	c := f.dial()
	id := c.start()
	for range 3 {
		c.event(id, "access")
		c.passed()
	}
	if !strings.Contains(f.log.String(), "oops") {
		t.Errorf("the log:\n%s", f.log)
	}
}

func TestEventsThatNobodyAskedForPass(t *testing.T) {
	p := &plugin{access: func(*pdk.Kong) {}}
	c := serve(t, p, pluginserver.Options{}).dial()
	id := c.start()
	c.event(id, "log")
	c.passed()
}

// A connection's end makes Kong start the instance again.
func TestUnknownInstanceEndsTheConnection(t *testing.T) {
	p := &plugin{access: func(*pdk.Kong) {}}
	f := serve(t, p, pluginserver.Options{})
	c := f.dial()
	c.event(c.start()+1, "access")
	c.closed()
}

func TestNoise(t *testing.T) {
	f := serve(t, &plugin{access: func(*pdk.Kong) {}}, pluginserver.Options{})
	for _, noise := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {3, 0, 0, 0, 0xff, 0xff, 0xff}, {0, 0, 0, 0}, {9, 0, 0, 0, 1}} {
		c := f.dial()
		if _, err := c.Write(noise); err != nil {
			t.Fatal(err)
		}
		if len(noise) == 5 { // the rest never comes
			_ = c.Close()
			continue
		}
		c.closed()
	}
	c := f.dial() // and others are served
	c.event(c.start(), "access")
	c.passed()
}

// An instance that is closed while it is at work closes when it has finished, once.
func TestCloseWaitsForEvents(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	p := &plugin{access: func(*pdk.Kong) { close(begun); <-finish }}
	f := serve(t, p, pluginserver.Options{})
	worker, other := f.dial(), f.dial()
	id := worker.start()
	worker.event(id, "access")
	<-begun
	other.call(&kong_plugin_protocol.RpcCall{Sequence: 2, Call: &kong_plugin_protocol.RpcCall_CmdCloseInstance{
		CmdCloseInstance: &kong_plugin_protocol.CmdCloseInstance{InstanceId: id},
	}})
	other.reply()
	if p.closed.Load() != 0 {
		t.Error("closed at work")
	}
	close(finish)
	worker.passed()
	worker.event(id, "access")
	worker.closed()
	if p.closed.Load() != 1 {
		t.Errorf("closed %d times", p.closed.Load())
	}
}

// Instances that nginx workers forgot are closed: above a bound those that were used longest ago.
func TestInstancesAreBounded(t *testing.T) {
	p := &plugin{access: func(*pdk.Kong) {}}
	f := serve(t, p, pluginserver.Options{MaxInstances: 3})
	c := f.dial()
	first := c.start()
	for range 5 {
		c.start()
		c.event(first, "access") // in use
		c.passed()
	}
	if started, closed := p.started.Load(), p.closed.Load(); started-closed != 3 {
		t.Errorf("%d started, %d closed, want 3 left", started, closed)
	}
	f.stop()
	if started, closed := p.started.Load(), p.closed.Load(); started != closed {
		t.Errorf("%d started, %d closed at the end", started, closed)
	}
}

func TestIdleInstancesExpire(t *testing.T) {
	p := &plugin{access: func(*pdk.Kong) {}}
	f := serve(t, p, pluginserver.Options{IdleInstance: 20 * time.Millisecond})
	c := f.dial()
	c.start()
	for deadline := time.Now().Add(20 * time.Second); p.closed.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("never closed")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// At the end, idle connections close at once, and an event under way is finished first.
func TestServeDrains(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	p := &plugin{access: func(*pdk.Kong) { close(begun); <-finish }}
	f := serve(t, p, pluginserver.Options{})
	idle, busy := f.dial(), f.dial()
	idle.start()
	busy.event(busy.start(), "access")
	<-begun
	f.cancel()
	idle.closed()
	close(finish)
	busy.passed()
	busy.closed()
	f.stop()
	if p.closed.Load() != 2 {
		t.Errorf("%d instances were closed, want 2", p.closed.Load())
	}
}

// A Kong that stops in the middle of an event does not keep a goroutine for ever.
func TestSilentKong(t *testing.T) {
	failed := make(chan error, 1)
	p := &plugin{access: func(kong *pdk.Kong) {
		_, err := kong.ForwardedIP()
		failed <- err
	}}
	f := serve(t, p, pluginserver.Options{EventTimeout: 30 * time.Millisecond})
	c := f.dial()
	c.event(c.start(), "access")
	if err := <-failed; err == nil {
		t.Error("a call without an answer succeeded")
	}
}
