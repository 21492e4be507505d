package redisstore_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a store and its server and lets them down as it is told.
type proxy struct {
	listener net.Listener
	backend  string

	mu        sync.Mutex
	open      map[net.Conn]*atomic.Bool // whether what is sent on it goes nowhere
	swallow   bool                      // so it does on new connections
	cutOn     []byte                    // a connection is cut before the answer to a request that holds this
	delivered int                       // requests with cutOn that reached the server
}

func newProxy(t *testing.T, backend string) *proxy {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, backend: backend, open: make(map[net.Conn]*atomic.Bool)}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for c := range p.open {
			_ = c.Close()
		}
		p.mu.Unlock()
		group.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// hold makes the proxy swallow everything on the connections that are open, for ever, and on new ones until release.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = true
	for _, dead := range p.open {
		dead.Store(true)
	}
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = false
}

// cut makes the proxy cut each connection on which text is sent, once the server has answered.
func (p *proxy) cut(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutOn = []byte(text)
}

func (p *proxy) deliveries() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delivered
}

func (p *proxy) track(c net.Conn) (dead *atomic.Bool, untrack func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	dead = new(atomic.Bool)
	dead.Store(p.swallow)
	p.open[c] = dead
	return dead, func() {
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, c)
	}
}

func (p *proxy) serve(client net.Conn) {
	dead, untrack := p.track(client)
	defer untrack()
	server, err := new(net.Dialer).Dial("tcp", p.backend)
	if err != nil {
		return
	}
	_, untrackServer := p.track(server)
	defer untrackServer()
	var cutting atomic.Bool
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if cutting.Load() || err != nil {
				_ = client.Close()
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		cut := len(p.cutOn) > 0 && bytes.Contains(buffer[:n], p.cutOn)
		if cut {
			p.delivered++
		}
		p.mu.Unlock()
		if dead.Load() {
			continue
		}
		if cut {
			cutting.Store(true)
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// mute accepts connections and reads nothing.
func mute(t *testing.T) net.Listener {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// scripted answers every command of RESP with +OK, and calls of the script with what answer returns.
func scripted(t *testing.T, answer func() string) string {
	t.Helper()
	listener := mute(t)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer client.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := client.Read(buffer)
					if err != nil {
						return
					}
					text := "+OK\r\n"
					if command := bytes.ToLower(buffer[:n]); bytes.Contains(command, []byte("\r\neval")) {
						text = answer()
					} else if bytes.Contains(command, []byte("\r\nhello")) {
						text = "-ERR unknown command 'hello'\r\n"
					} else if !bytes.HasPrefix(command, []byte("*")) {
						continue // the rest of a longer command
					}
					if _, err := io.WriteString(client, text); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait()
	})
	return listener.Addr().String()
}
