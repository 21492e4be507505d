package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 5 * time.Second
	pollEvery    = 10 * time.Millisecond
	keepOutput   = 8 << 10
)

// process is a server that this command has started.
type process struct {
	name    string
	command *exec.Cmd
	output  *lastBytes
	ended   chan struct{}
}

// start runs a program. It is ended by stop, and by the kernel should this process die without calling it.
func start(name, dir string, environ []string, program string, args ...string) (*process, error) {
	p := &process{name: name, output: &lastBytes{}, ended: make(chan struct{})}
	p.command = exec.Command(program, args...) //nolint:noctx // stop ends it, in the order that the servers need
	p.command.Dir = dir
	// Nothing that is set here changes what is measured.
	p.command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}, environ...)
	p.command.Stdout, p.command.Stderr = p.output, p.output
	p.command.SysProcAttr = attributes()
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

// await calls ready until it reports true.
func (p *process) await(ctx context.Context, ready func() bool) error {
	deadline := time.After(startTimeout)
	for !ready() {
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended while starting; its last output:\n%s", p.name, p.output)
		case <-deadline:
			return fmt.Errorf("%s is not ready after %v; its last output:\n%s", p.name, startTimeout, p.output)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
	return nil
}

func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

// freePort returns a port of 127.0.0.1 that nobody listens on.
func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	mu    sync.Mutex
	bytes []byte
}

func (b *lastBytes) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes = append(b.bytes, p...)
	if over := len(b.bytes) - keepOutput; over > 0 {
		b.bytes = append(b.bytes[:0], b.bytes[over:]...)
	}
	return len(p), nil
}

func (b *lastBytes) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.bytes)
}
