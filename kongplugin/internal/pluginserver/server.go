// Package pluginserver serves Kong on the plugin's socket: it starts and closes instances, runs events, and outlives whatever
// goes wrong in one of them.
//
// It takes the place of go-pdk's server, which ends the process when a handler panics (500s until Kong has started another),
// answers a config that it cannot read with a 500 on each request, tells nobody that an instance was closed, forgets
// instances that are in use, and gives two workers' instances one number. The protocol is the same, by go-pdk's messages.
//
// What Kong makes of an answer decides what is answered here: a connection that closes in an event makes Kong start the
// instance again and repeat the event, without end, so a connection is closed only where that helps.
package pluginserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/Kong/go-pdk/server/kong_plugin_protocol"
	"golang.org/x/net/netutil"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/kongplugin/internal/pdk"
	"github.com/weirhq/weir/kongplugin/internal/wire"
)

// Plugin makes instances.
type Plugin interface {
	// Start returns an instance for a config, in JSON. It must not fail: an instance whose config is wrong says so in its
	// events. It must be safe for concurrent use.
	Start(config []byte) Instance
}

// Instance handles the events of one config.
type Instance interface {
	// Access is called for each request. It must be safe for concurrent use.
	Access(kong *pdk.Kong)
	// Close is called once, when no event is under way and none will come.
	Close()
}

// Options are a Server's settings. The zero value is usable.
type Options struct {
	// Name is the plugin's name in answers to Kong.
	Name string
	// MaxConns bounds the connections; more wait to be accepted. 0: 16,384.
	MaxConns int
	// MaxInstances bounds the instances; above it those unused for longest are closed, and Kong starts them again if it needs
	// them. 0: 16,384.
	MaxInstances int
	// IdleInstance is how long an instance may be unused before it is closed: nginx workers that crash, and Kong itself after
	// an error, forget instances without closing them. 0: 24 hours, since a memory store that nobody else uses goes with it.
	IdleInstance time.Duration
	// EventTimeout bounds an event, Kong's part in it included. 0: 30 s.
	EventTimeout time.Duration
	// DrainTimeout bounds how long Serve waits for events under way when it is told to end. 0: 5 s.
	DrainTimeout time.Duration
	// Logger is told what goes wrong. nil: nobody is.
	Logger *slog.Logger
}

// Server serves a Plugin.
type Server struct {
	plugin    Plugin
	options   Options
	instances instances

	mu    sync.Mutex
	conns map[net.Conn]bool // whether an event is under way
	ended bool
}

// New returns a Server for a plugin.
func New(plugin Plugin, options Options) *Server {
	if options.MaxConns == 0 {
		options.MaxConns = 16 << 10
	}
	if options.MaxInstances == 0 {
		options.MaxInstances = 16 << 10
	}
	if options.IdleInstance == 0 {
		options.IdleInstance = 24 * time.Hour
	}
	if options.EventTimeout == 0 {
		options.EventTimeout = 30 * time.Second
	}
	if options.DrainTimeout == 0 {
		options.DrainTimeout = 5 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		plugin: plugin, options: options,
		instances: instances{max: options.MaxInstances, byID: make(map[int32]*instance)},
		conns:     make(map[net.Conn]bool),
	}
}

// Serve answers on listener until ctx ends; then it lets the events under way end, closes all connections and instances,
// and returns nil. It returns an error if the listener fails. It must be called once, and closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	listener = netutil.LimitListener(listener, s.options.MaxConns)
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var tasks, conns sync.WaitGroup
	tasks.Go(func() { s.sweep(background) })
	err := s.accept(ctx, listener, &conns)
	_ = listener.Close()
	s.drain(&conns)
	cancel()
	tasks.Wait()
	s.instances.closeAll()
	return err
}

// Conns is how many connections Kong has open.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Instances is how many instances there are.
func (s *Server) Instances() int { return s.instances.len() }

func (s *Server) accept(ctx context.Context, listener net.Listener, conns *sync.WaitGroup) error {
	pause := time.Duration(0)
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("the plugin's socket: %w", err)
		case err != nil:
			// Out of file descriptors, most likely. Ending would only make things worse.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.options.Logger.ErrorContext(ctx, "a connection was not accepted, trying again", "error", err, "pause", pause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		}
		pause = 0
		s.mark(conn, false)
		conns.Go(func() {
			defer s.forget(conn)
			s.serve(conn)
		})
	}
}

func (s *Server) sweep(ctx context.Context) {
	ticker := time.NewTicker(min(time.Minute, s.options.IdleInstance))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.instances.expire(time.Now().Add(-s.options.IdleInstance))
		}
	}
}

// drain closes the connections: those without an event at once, the others when it has ended or the time is over.
func (s *Server) drain(conns *sync.WaitGroup) {
	s.mu.Lock()
	s.ended = true
	for conn, busy := range s.conns {
		if !busy {
			_ = conn.Close()
		}
	}
	s.mu.Unlock()
	late := time.AfterFunc(s.options.DrainTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for conn := range s.conns {
			_ = conn.Close()
		}
	})
	defer late.Stop()
	conns.Wait()
}

// mark notes whether conn has an event under way, and reports whether to go on with it.
func (s *Server) mark(conn net.Conn, busy bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[conn] = busy
	if s.ended && !busy {
		_ = conn.Close()
	}
	return !s.ended
}

func (s *Server) forget(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = conn.Close()
	delete(s.conns, conn)
}

// serve answers the calls on one connection, which Kong keeps for further ones.
func (s *Server) serve(raw net.Conn) {
	conn := wire.New(raw)
	for {
		frame, err := conn.ReadFrame()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				s.options.Logger.Debug("a connection from Kong broke", "error", err)
			}
			return
		}
		var call kong_plugin_protocol.RpcCall
		if err := proto.Unmarshal(frame, &call); err != nil {
			s.options.Logger.Error("a call from Kong cannot be read", "error", err)
			return
		}
		if !s.mark(raw, true) {
			return
		}
		ok := s.answer(conn, &call)
		if !s.mark(raw, false) || !ok {
			return
		}
	}
}

// answer answers one call, and reports whether the connection can be used for the next one.
func (s *Server) answer(conn *wire.Conn, call *kong_plugin_protocol.RpcCall) bool {
	reply := &kong_plugin_protocol.RpcReturn{Sequence: call.GetSequence()}
	switch c := call.GetCall().(type) {
	case *kong_plugin_protocol.RpcCall_CmdStartInstance:
		instance := s.instances.add(s.plugin.Start(c.CmdStartInstance.GetConfig()), time.Now())
		reply.Return = s.status(instance)
	case *kong_plugin_protocol.RpcCall_CmdCloseInstance:
		instance := s.instances.remove(c.CmdCloseInstance.GetInstanceId())
		if instance == nil {
			return false // Kong does not mind: another worker may have been first
		}
		reply.Return = s.status(instance)
	case *kong_plugin_protocol.RpcCall_CmdGetInstanceStatus:
		instance := s.instances.acquire(c.CmdGetInstanceStatus.GetInstanceId(), time.Now())
		if instance == nil {
			return false
		}
		reply.Return = s.status(instance)
		instance.release()
	case *kong_plugin_protocol.RpcCall_CmdHandleEvent:
		if !s.event(conn, c.CmdHandleEvent) {
			return false
		}
	case *kong_plugin_protocol.RpcCall_CmdGetPluginNames:
		reply.Return = &kong_plugin_protocol.RpcReturn_PluginNames{
			PluginNames: &kong_plugin_protocol.PluginNames{Names: []string{s.options.Name}},
		}
	default:
		s.options.Logger.Error("Kong made a call that is unknown here", "call", fmt.Sprintf("%T", c))
		return false
	}
	text, err := proto.Marshal(reply)
	if err != nil {
		s.options.Logger.Error("an answer to Kong cannot be written", "error", err)
		return false
	}
	conn.WriteFrame(text)
	return conn.Flush() == nil
}

func (s *Server) status(i *instance) *kong_plugin_protocol.RpcReturn_InstanceStatus {
	return &kong_plugin_protocol.RpcReturn_InstanceStatus{InstanceStatus: &kong_plugin_protocol.InstanceStatus{
		Name: s.options.Name, InstanceId: i.id, StartedAt: i.started.Unix(),
	}}
}

// event runs an instance's handler, and reports whether the connection can be used on. The empty frame that ends an event
// leaves with the reply.
func (s *Server) event(conn *wire.Conn, event *kong_plugin_protocol.CmdHandleEvent) bool {
	instance := s.instances.acquire(event.GetInstanceId(), time.Now())
	if instance == nil {
		// Closed, or of a process before this one. The connection's end makes Kong start the instance and repeat the event.
		s.options.Logger.Debug("no plugin instance", "instance", event.GetInstanceId())
		return false
	}
	defer instance.release()
	if event.GetEventName() != "access" {
		// It was not asked for. A connection that ends would only have it repeated.
		s.options.Logger.Error("an event that is unknown here was let pass", "event", event.GetEventName())
		conn.WriteFrame(nil)
		return true
	}
	conn.SetDeadline(time.Now().Add(s.options.EventTimeout))
	kong := pdk.New(conn)
	s.run(instance, kong)
	if kong.Exited() || conn.Err() != nil {
		return false
	}
	conn.SetDeadline(time.Time{})
	conn.WriteFrame(nil)
	return true
}

// run calls the handler. It is the last resort: a handler that panics should have known better, and its request passes.
func (s *Server) run(instance *instance, kong *pdk.Kong) {
	defer func() {
		if value := recover(); value != nil {
			s.options.Logger.Error("a panic was caught: please report it", "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
		}
	}()
	instance.plugin.Access(kong)
}
