package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirhq/weir/test/servers"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"weir": func() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

// TestScripts runs the command line as people do. Besides testscript's own commands there are
//
//	exits CODE weir ARG...     runs weir, which must end with this exit code
//	start ARG...               starts 'weir serve ARG...' on free ports, waits until it serves, and sets $GRPC and $HTTP
//	stop                       ends it as SIGTERM does, and leaves what it printed in serve.out and serve.err
//	await PATTERN weir ARG...  runs weir until it prints what the pattern matches
//	authority                  writes ca.pem, and server.pem and server.key that come from it, for localhost
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "start": start, "stop": stop, "await": await,
			"authority": func(ts *testscript.TestScript, _ bool, _ []string) { servers.NewAuthority(t, ts.MkAbs(".")) },
		},
		Setup: func(env *testscript.Env) error {
			env.Values[servedKey{}] = &served{}
			// The race detector waits for a second when a program ends, and the scripts run a hundred of them.
			env.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
			return nil
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE weir ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// served is the server that a script has started.
type served struct {
	command *exec.Cmd
	out     *os.File
	read    sync.WaitGroup
}

type servedKey struct{}

// startTimeout bounds how long a server may take to serve or to stop. It is generous because test machines are busy.
const startTimeout = 30 * time.Second

var greeting = regexp.MustCompile(`^  (gRPC|HTTP) +([^ ,]+)`)

func start(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(servedKey{}).(*served)
	if neg || s.command != nil {
		ts.Fatalf("usage: start ARG..., once until stop")
	}
	path, err := exec.LookPath("weir")
	ts.Check(err)
	args = append([]string{
		"serve", "--set", "server.host=127.0.0.1", "--set", "server.port=0", "--set", "server.grpc_port=0", "--set", "server.fast_port=0",
		"--set", "server.drain_delay=0s",
	}, args...)
	s.command = exec.Command(path, args...) //nolint:noctx // stop, or the end of the script, ends it
	s.command.Dir = ts.MkAbs(".")
	s.command.Env = environment(ts)
	errs, err := os.Create(ts.MkAbs("serve.err"))
	ts.Check(err)
	defer errs.Close()
	s.command.Stderr = errs
	s.out, err = os.Create(ts.MkAbs("serve.out"))
	ts.Check(err)
	pipe, err := s.command.StdoutPipe()
	ts.Check(err)
	ts.Check(s.command.Start())
	ts.Defer(func() { _ = s.end(syscall.SIGKILL) })

	lines := make(chan string)
	s.read.Go(func() {
		defer close(lines)
		for scanner := bufio.NewScanner(io.TeeReader(pipe, s.out)); scanner.Scan(); {
			lines <- scanner.Text()
		}
	})
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	for found := 0; found < 2; {
		select {
		case line, ok := <-lines:
			if !ok {
				text, _ := os.ReadFile(ts.MkAbs("serve.err"))
				ts.Fatalf("weir serve ended: %s", text)
			}
			if match := greeting.FindStringSubmatch(line); match != nil {
				ts.Setenv(strings.ToUpper(match[1]), match[2])
				found++
			}
		case <-timeout.C:
			ts.Fatalf("weir serve did not serve within %v", startTimeout)
		}
	}
	s.read.Go(func() {
		for range lines { // so that the server never waits for its reader
		}
	})
}

// environment is the script's, which must not hold what the tests themselves were called with.
func environment(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOCOVERDIR", "GORACE", serverVariable, tokenVariable} {
		if value := ts.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func stop(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(servedKey{}).(*served)
	if neg || len(args) > 0 || s.command == nil {
		ts.Fatalf("usage: stop, after start")
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		text, _ := os.ReadFile(ts.MkAbs("serve.err"))
		ts.Fatalf("weir serve ended with %v: %s", err, text)
	}
}

func (s *served) end(signal os.Signal) error {
	if s.command == nil {
		return nil
	}
	_ = s.command.Process.Signal(signal)
	killer := time.AfterFunc(startTimeout, func() { _ = s.command.Process.Kill() })
	defer killer.Stop()
	s.read.Wait()
	err := s.command.Wait()
	s.command = nil
	return errors.Join(err, s.out.Close())
}

// await repeats a command until it succeeds: for what happens by itself, such as the reload of a file.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await PATTERN COMMAND ARG...")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var text []byte
	for ctx.Err() == nil {
		command := exec.CommandContext(ctx, path, args[2:]...)
		command.Dir, command.Env = ts.MkAbs("."), environment(ts)
		printed, _ := command.CombinedOutput()
		if pattern.Match(printed) {
			return
		}
		if ctx.Err() == nil {
			text = printed
		}
	}
	ts.Fatalf("%s never printed %s, last: %s", strings.Join(args[1:], " "), args[0], text)
}

// The scripts' folder says what there is; a script that is in another place would never run.
func TestEveryCommandHasAScript(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	root := newRoot()
	for _, command := range root.Commands() {
		if command.Hidden || command.Name() == "bench" {
			continue // bench has tests of its own, with loads
		}
		names := []string{command.Name()}
		for _, sub := range command.Commands() {
			names = append(names, command.Name()+" "+sub.Name())
		}
		for _, name := range names {
			if !strings.Contains(all.String(), fmt.Sprintf("weir %s --help", name)) {
				t.Errorf("no script shows 'weir %s --help'", name)
			}
		}
	}
}
