package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Envoy says how requests go through an Envoy that asks the server, as a gateway does.
type Envoy struct {
	// Path is the program, 1.40 or newer.
	Path string
	// Concurrency is the number of its worker threads, 1 to 64. 0: 1.
	Concurrency int
}

const (
	maxEnvoyWorkers = 64
	envoyStart      = 20 * time.Second
	envoyEnd        = 3 * time.Second
	envoyPause      = 20 * time.Millisecond // between looks at whether it is up
	envoyLog        = 4 << 10               // bytes that are kept of what it says
)

// envoyProcess is an Envoy in front of one server, with an upstream that it plays itself.
type envoyProcess struct {
	pid     int
	address string // host:port for HTTP requests
	dir     string
	said    *lastBytes
	ended   chan struct{}
	err     error // valid once ended
}

// startEnvoy starts an Envoy on free ports that asks address for limits. Close ends it.
func startEnvoy(ctx context.Context, settings Envoy, address Address, options Options) (_ *envoyProcess, err error) {
	p := &envoyProcess{said: &lastBytes{}, ended: make(chan struct{})}
	if p.dir, err = os.MkdirTemp("", "weir-bench"); err != nil {
		return nil, err
	}
	config := filepath.Join(p.dir, "envoy.json")
	text, err := envoyBootstrap(p.dir, address, options)
	if err == nil {
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	command := exec.Command(settings.Path, //nolint:noctx // close ends it
		"--config-path", config, "--concurrency", strconv.Itoa(max(1, settings.Concurrency)),
		"--log-level", "error", "--disable-hot-restart")
	command.Stdout, command.Stderr = p.said, p.said
	if err := p.start(command); err != nil {
		return nil, errors.Join(fmt.Errorf("start Envoy: %w", err), os.RemoveAll(p.dir))
	}
	if err := p.await(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// start starts the program, and has it end with this process even if that is killed.
func (p *envoyProcess) start(command *exec.Cmd) error {
	attach(command)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel watches the thread that has started it
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = command.Wait()
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	p.pid = command.Process.Pid
	return nil
}

// await returns once Envoy takes requests.
func (p *envoyProcess) await(ctx context.Context) error {
	admin := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, "admin.sock"))
	}}}
	defer admin.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, envoyStart)
	defer cancel()
	ticker := time.NewTicker(envoyPause)
	defer ticker.Stop()
	for {
		if p.address = listenerAddress(ctx, admin); p.address != "" {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.ended:
			return fmt.Errorf("envoy ended while starting (%w); it said: %s", errors.Join(p.err, errEnvoyEnded), shown(p.said.String()))
		case <-ctx.Done():
			return fmt.Errorf("envoy did not start: %w", context.Cause(ctx))
		}
	}
}

var errEnvoyEnded = errors.New("see whether it is an Envoy of 1.40 or newer")

// listenerAddress asks Envoy where it listens. It is empty while Envoy does not.
func listenerAddress(ctx context.Context, admin *http.Client) string {
	ask := func(path string) []byte {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy"+path, nil)
		if err != nil {
			return nil
		}
		response, err := admin.Do(request)
		if err != nil {
			return nil
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
		if err != nil || response.StatusCode != http.StatusOK {
			return nil
		}
		return body
	}
	if ask("/ready") == nil {
		return ""
	}
	var reply struct {
		Listeners []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Host string `json:"address"`
					Port int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if json.Unmarshal(ask("/listeners?format=json"), &reply) != nil {
		return ""
	}
	for _, listener := range reply.Listeners {
		if socket := listener.Address.Socket; listener.Name == "ingress" && socket.Port != 0 {
			return net.JoinHostPort(socket.Host, strconv.Itoa(socket.Port))
		}
	}
	return ""
}

// close ends Envoy and removes its files.
func (p *envoyProcess) close() {
	_ = syscall.Kill(p.pid, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(envoyEnd):
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.ended
	}
	_ = os.RemoveAll(p.dir)
}

// lastBytes keeps the end of what is written to it. It is read once the writer has ended.
type lastBytes struct{ kept []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p...)
	if extra := len(l.kept) - envoyLog; extra > 0 {
		l.kept = append(l.kept[:0], l.kept[extra:]...)
	}
	return len(p), nil
}

func (l *lastBytes) String() string {
	return strings.TrimSpace(string(bytes.ToValidUTF8(l.kept, []byte("?"))))
}
