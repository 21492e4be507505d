package servers

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// StartTimeout bounds how long a server may take until it answers. It is generous because test machines are busy.
	StartTimeout = 20 * time.Second

	stopTimeout = 5 * time.Second
	logTail     = 16 << 10 // bytes of a process's output that are kept
)

// Process is a child process that lives no longer than its test. Its output is kept, and shown when the test fails.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  *tail
	done chan struct{} // closed when the process has ended
	err  error         // of Wait; readable once done is closed
}

// Find returns the path of a program, which it seeks on PATH. If there is none the test fails with the hint, which says
// how to install it.
func Find(t testing.TB, name, hint string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed: %s", name, hint)
	}
	return path
}

// Start runs a program until it ends by itself, is stopped, or the test ends. name stands for it in logs.
func Start(t testing.TB, name, path string, args ...string) *Process {
	t.Helper()
	return startWith(t, dieWithParent(), name, path, args...)
}

// startWith is Start with attributes of the process, such as the user that it runs as.
func startWith(t testing.TB, attributes *syscall.SysProcAttr, name, path string, args ...string) *Process {
	t.Helper()
	// The process outlives the test's context: cleanup ends it, after cleanups that still need it.
	cmd := exec.Command(path, args...) //nolint:noctx // see above
	cmd.SysProcAttr = attributes
	return StartCommand(t, name, cmd)
}

// StartCommand is Start for a command that has been prepared by its caller, with an environment or a root folder of its
// own. Its output is taken by the Process.
func StartCommand(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{name: name, cmd: cmd, log: &tail{limit: logTail}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("last output of %s (pid %d):\n%s", name, p.PID(), p.Log())
		}
	})
	return p
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err is how the process ended: nil for exit code 0. It waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Log returns the last part of what the process wrote to standard output and standard error.
func (p *Process) Log() string { return p.log.String() }

// Signal sends a signal. It reports false if the process has ended.
func (p *Process) Signal(signal os.Signal) bool {
	return p.Running() && p.cmd.Process.Signal(signal) == nil
}

// Stop asks the process to end (SIGTERM) and waits for it; one that does not end in time is killed.
func (p *Process) Stop() {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.Kill()
	}
}

// Kill ends the process at once, also a paused one, and waits until it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Await calls ready until it reports true. It reports false if the process ends before that, and fails the test when
// StartTimeout has passed.
func (p *Process) Await(t testing.TB, ready func() bool) bool {
	t.Helper()
	deadline := time.Now().Add(StartTimeout)
	for !ready() {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready after %v; its output:\n%s", p.name, StartTimeout, p.Log())
		}
		select {
		case <-p.done:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	return true
}

// Eventually calls condition until it reports true, and fails the test when StartTimeout has passed.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(StartTimeout); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s", StartTimeout, what)
		}
	}
}

// FreePort returns a TCP port of the loopback interface that nobody listens on. It lies below the range from which the
// system takes ports for outgoing connections, so that a server can be restarted on it. Another process may take it first:
// a caller whose server cannot bind tries another one.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 12000 + rand.IntN(20000)
		if _, taken := portsGiven.LoadOrStore(port, true); taken {
			continue
		}
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp", Address(port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			t.Fatalf("close the listener on port %d: %v", port, err)
		}
		return port
	}
	t.Fatal("no free port found on 127.0.0.1 in 1000 tries")
	return 0
}

// portsGiven holds the ports that this process has handed out, so that none is handed out twice.
var portsGiven sync.Map

// Address returns port on the loopback interface, as host:port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// shortDir returns a folder with a path short enough for a unix socket in it; t.TempDir can be too long for that.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return dir
}

// writeFile writes a file into dir and returns its path.
func writeFile(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tail keeps the last bytes written to it.
type tail struct {
	mu    sync.Mutex
	limit int
	bytes []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes = append(l.bytes, p...)
	if over := len(l.bytes) - l.limit; over > 0 {
		l.bytes = append(l.bytes[:0], l.bytes[over:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.ToValidUTF8(l.bytes, []byte("?")))
}
