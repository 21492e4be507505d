package xds

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirhq/weir/pkg/rules"
)

// Sink takes what the control plane says.
type Sink interface {
	// Put puts rules in force, in place of those that it was given before. table is the same as before where only the version is
	// another. If it returns an error nothing has changed.
	Put(table *rules.Table, version string) error
	// Refuse tells of rules that were refused, and why. Those before stay in force.
	Refuse(err error)
}

// Client follows one control plane.
type Client struct {
	options Options
	node    *core.Node
	state   atomic.Pointer[state]
}

// state is what is known of the stream.
type state struct {
	up  bool
	err error // why not; nil: there was no attempt yet
}

// New prepares a client. It does not connect.
func New(options Options) *Client {
	options = options.withDefaults()
	c := &Client{options: options, node: &core.Node{Id: options.NodeID, UserAgentName: "weir"}}
	if len(options.NodeMetadata) > 0 {
		c.node.Metadata = &structpb.Struct{Fields: make(map[string]*structpb.Value, len(options.NodeMetadata))}
		for name, value := range options.NodeMetadata {
			c.node.Metadata.Fields[name] = structpb.NewStringValue(value)
		}
	}
	c.state.Store(&state{})
	return c
}

// Run follows the control plane until ctx ends, and gives sink what it says. It must be called once.
func (c *Client) Run(ctx context.Context, sink Sink) {
	pauses := &pauses{backoff: c.options.Backoff, connectRetry: c.options.ConnectRetry}
	held := &resources{}
	for ctx.Err() == nil {
		s := &session{client: c, sink: sink, held: held}
		err := s.run(ctx)
		held = s.held
		if ctx.Err() != nil {
			break
		}
		wait := pauses.unreachable()
		if s.opened {
			wait = pauses.afterStream(s.brought)
		}
		c.down(ctx, err, wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	c.options.Observer.ControlPlaneUp(false)
}

// Ready returns why there is no stream, nil if there is one.
func (c *Client) Ready(context.Context) error {
	switch state := c.state.Load(); {
	case state.up:
		return nil
	case state.err == nil:
		return fmt.Errorf("no stream from the control plane %s yet", c.options.Server)
	default:
		return fmt.Errorf("no stream from the control plane %s: the rules in memory stay in force: %w", c.options.Server, state.err)
	}
}

func (c *Client) up(ctx context.Context) {
	c.state.Store(&state{up: true})
	c.options.Observer.ControlPlaneUp(true)
	c.options.Logger.InfoContext(ctx, "following the control plane", "server", c.options.Server, "node", c.options.NodeID)
}

// down tells that there is no stream. What fails again in the same way is not told again.
func (c *Client) down(ctx context.Context, err error, wait time.Duration) {
	last := c.state.Swap(&state{err: err})
	c.options.Observer.ControlPlaneUp(false)
	level := slog.LevelWarn
	if !last.up && last.err != nil && last.err.Error() == err.Error() {
		level = slog.LevelDebug
	}
	c.options.Logger.Log(ctx, level, "no stream from the control plane: the rules in memory stay in force",
		"server", c.options.Server, "again_in", wait.Round(time.Millisecond), "error", err)
}
