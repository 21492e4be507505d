package kong

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// Node is one Kong: a plugin process and the nginx workers that speak to it.
type Node struct {
	t       testing.TB
	prefix  string
	process *servers.Process
	args    []string
	Workers []*Worker
}

// Start starts the plugin as Kong does, and workers.
func Start(t testing.TB, workers int, args ...string) *Node {
	t.Helper()
	prefix, err := os.MkdirTemp("", "kong") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(prefix) })
	n := &Node{t: t, prefix: prefix, args: args}
	for id := range workers {
		n.Workers = append(n.Workers, &Worker{t: t, node: n, id: id, instances: make(map[string]*claim)})
	}
	n.Spawn()
	t.Cleanup(func() {
		for _, worker := range n.Workers {
			worker.Close()
		}
	})
	return n
}

// Spawn starts a plugin process that takes over the socket, as `kong reload` does, and returns the one before it.
func (n *Node) Spawn() *servers.Process {
	n.t.Helper()
	before := n.process
	command := exec.Command(Binary(n.t), append([]string{"-kong-prefix", n.prefix}, n.args...)...) //nolint:noctx // ended by its cleanup
	n.process = servers.StartCommand(n.t, Name, command)
	pid := n.process.PID()
	if !n.process.Await(n.t, func() bool { return n.peer() == pid }) {
		n.t.Fatalf("%s did not start: %v; its output:\n%s", Name, n.process.Err(), n.process.Log())
	}
	return before
}

// Process is the plugin's process.
func (n *Node) Process() *servers.Process { return n.process }

// Socket is the path of the plugin's socket.
func (n *Node) Socket() string { return filepath.Join(n.prefix, Name+".socket") }

func (n *Node) connect() (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(context.Background(), "unix", n.Socket())
}

// Config is a plugin as it is configured in Kong. A change makes a new Seq.
type Config struct {
	ID     string // __plugin_id
	Seq    int64
	Values map[string]any // as Kong sends them, after its schema
	Route  string         // the id of the route that it is configured on; "": all
}

func (c *Config) json() []byte {
	all := map[string]any{"__seq__": c.Seq, "__plugin_id": c.ID, "$refs": map[string]any{}, "plugin_instance_name": nil}
	if c.Route != "" {
		all["route_id"] = c.Route
	}
	maps.Copy(all, c.Values)
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // a test's own mistake
	}
	return text
}

var seq atomic.Int64

// Configure returns a config as the Admin API would make it.
func Configure(id string, values map[string]any) *Config {
	return &Config{ID: id, Seq: seq.Add(1), Values: values}
}

// Request is what a client sent, as far as plugins can ask.
type Request struct {
	ID                             string // Kong's, the same when an event is run again
	IP                             string
	Method, Path, Query            string
	Headers                        map[string]string
	Consumer, Username, Credential string
	Route, Service                 string

	// CutAt closes the connection instead of answering this call, counted from 1, when the event is first run. 0: never.
	CutAt int
}

// Response is what became of a request.
type Response struct {
	// Status is 0 if the request went on to the upstream.
	Status  int
	Body    string
	Headers map[string]string // those that the plugin set
	Calls   []string          // the PDK calls, of all runs of the event
	Runs    int
	// Finish ends the request, when Kong closes the connection of an exit. Until then it is open.
	Finish func()
}

// Denied reports whether Kong answered by itself.
func (r *Response) Denied() bool { return r.Status != 0 }

var (
	// errClosed is what nginx says of a connection that the plugin closed.
	errClosed = errors.New("closed")
	// ErrFailed is wrapped where real Kong answers with a 500.
	ErrFailed = errors.New("a 500 of Kong")
)

func failed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFailed, fmt.Sprintf(format, args...))
}

// claim is one instance, as a worker knows it. Its lock is held while the instance is started.
type claim struct {
	mu  sync.Mutex
	id  int32
	seq int64
}
