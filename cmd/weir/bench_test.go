package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/bench"
	"github.com/weirhq/weir/test/servers"
)

// runWeir runs the real binary and returns its exit code.
func runWeir(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	command := exec.CommandContext(t.Context(), servers.WeirBinary(t), args...)
	command.Stdout, command.Stderr = &out, &errs
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String(), errs.String()
}

// A short load of a real server, with every workload in both loops, beside the floor.
func TestBench(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "bench.yaml")
	code, text, stderr := runWeir(t, "bench", "--print-rules", "weir")
	if code != exitOK {
		t.Fatalf("--print-rules: %d %s", code, stderr)
	}
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(shortDir(t), "weir.sock")
	weir := servers.Weir(t, servers.WeirOptions{RulesPath: rules, Set: map[string]string{"server.grpc_socket": socket}})
	short := []string{
		"--keys", "100", "--rounds", "2", "--duration", "100ms", "--warmup", "10ms", "--timeout", "10s", "-o", "json",
		"--pid", fmt.Sprintf("weir=%d", weir.Process().PID()),
	}
	for _, workload := range bench.Kinds() {
		ways := [][]string{{weir.GRPC(), "--floor"}}
		if workload == bench.Three {
			ways = append(ways, []string{weir.GRPC(), "--rate", "500"}, []string{"unix:" + socket, "--floor"},
				[]string{"tcp=" + weir.GRPC(), "--vs", "unix=unix:" + socket})
		}
		for _, extra := range ways {
			args := append([]string{"bench", "--workload", string(workload)}, append(short, extra...)...)
			code, stdout, stderr := runWeir(t, args...)
			if code != exitOK {
				t.Fatalf("weir %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
			}
			var report bench.Report
			if err := json.Unmarshal([]byte(stdout), &report); err != nil {
				t.Fatalf("%v in:\n%s", err, stdout)
			}
			for _, target := range report.Targets {
				m := target.Median
				if m.Calls == 0 || m.CPUTotal <= 0 || len(target.Rounds) != 2 {
					t.Errorf("weir %s: %s had %d calls in %d rounds at %v us", strings.Join(args, " "), target.Name, m.Calls, len(target.Rounds), m.CPUTotal)
				}
				if isOver := workload == bench.Over && target.Name != "floor"; isOver != (m.Denied > 0) || isOver == (m.Allowed > 0) {
					t.Errorf("%s: %s allowed %d and denied %d", workload, target.Name, m.Allowed, m.Denied)
				}
			}
			if len(report.Targets) == 2 && report.Ratios[0].CPU == nil {
				t.Errorf("weir %s: no ratio", strings.Join(args, " "))
			}
		}
	}
}

// A server that answers otherwise than the rules say: its figures are worth nothing, and a script can tell.
func TestBenchFindsWrongReplies(t *testing.T) {
	const rules = `
domain: bench
descriptors:
  - key: uniform
    limits: [{limit: 1, window: 1d}]
`
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"bench.yaml": rules}})
	args := []string{"bench", weir.GRPC(), "--keys", "10", "--rounds", "1", "--duration", "50ms", "--warmup", "0", "--timeout", "10s"}
	code, stdout, stderr := runWeir(t, args...)
	if code != exitNo || !strings.Contains(stdout, "overall code OVER_LIMIT instead of OK") || stderr != "" {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = runWeir(t, append(args, "--expect", "any")...); code != exitOK {
		t.Errorf("with --expect any: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// The command that a user types, with a real Envoy and a real weir: through it the fast port is asked, and Envoy counts apart.
func TestBenchThroughEnvoy(t *testing.T) {
	rules, err := bench.Rules("weir")
	if err != nil {
		t.Fatal(err)
	}
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"bench.yaml": rules}})
	code, stdout, stderr := runWeir(t, "bench", "weir="+weir.Fast(), "--vs", "slow="+weir.GRPC(), "--floor", "--via-envoy", servers.FindEnvoy(t),
		"--pid", "weir="+strconv.Itoa(weir.Process().PID()), "--concurrency", "2", "--keys", "20", "--rounds", "1", "--duration", "100ms",
		"--warmup", "0", "--timeout", "10s", "-o", "json")
	var report bench.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if len(report.Targets) != 3 || report.Load.Envoy != 2 || report.Load.Connections != 32 || len(report.Ratios) != 2 {
		t.Fatalf("reported %s", stdout)
	}
	for _, target := range report.Targets {
		if m := target.Median; m.Calls == 0 || m.Envoy <= 0 || m.CPUTotal <= 0 || m.CPU["envoy"] != 0 {
			t.Errorf("%s: %+v", target.Name, m)
		}
	}
	if asked := weir.Metric(`weir_grpc_requests_total{code="OK",method="/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"}`); asked < 40 {
		t.Errorf("weir was asked %v times", asked)
	}
}

func TestBenchMistakes(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "accepts 1 arg(s), received 0"},
		{[]string{"192.0.2.1:50051"}, "192.0.2.1:50051 is not on this machine: a load like this can take a service down; if it is yours to load, add --remote"},
		{[]string{"127.0.0.1:1", "--vs", "192.0.2.1:50051"}, "connect to 127.0.0.1:1"},
		{[]string{"127.0.0.1:1"}, "connect to 127.0.0.1:1"},
		{[]string{"nonsense"}, "write host:port or unix:PATH"},
		{[]string{"127.0.0.1:1", "--workload", "cold"}, "unknown workload"},
		{[]string{"127.0.0.1:1", "--pid", "weir"}, `--pid "weir": write NAME=PID`},
		{[]string{"127.0.0.1:1", "--pid", "weir=x"}, `--pid "weir=x": write NAME=PID`},
		{[]string{"127.0.0.1:1", "--expect", "maybe"}, `unknown code "maybe"`},
		{[]string{"127.0.0.1:1", "-o", "xml"}, `unknown output "xml"`},
		{[]string{"--print-rules", "nginx"}, `no rules for "nginx"`},
		{[]string{"--print-rules", "weir", "127.0.0.1:1"}, "unknown command"},
		{[]string{"127.0.0.1:1", "--callers", "0"}, "--callers is 0: write a greater one"},
		{[]string{"127.0.0.1:1", "--via-envoy", "/no/such/envoy"}, "--via-envoy: "},
		{[]string{"127.0.0.1:1", "--via-envoy", "sh", "--rate", "5"}, "--rate does not go with --via-envoy"},
		{[]string{"127.0.0.1:1", "--via-envoy", "sh", "--callers", "5"}, "so write --connections"},
		{[]string{"127.0.0.1:1", "--via-envoy", "sh", "--concurrency", "0"}, "--concurrency is 0"},
		{[]string{"127.0.0.1:1", "--concurrency", "2"}, "add --via-envoy PATH"},
		{[]string{"127.0.0.1:1", "--callers", "-1"}, "-1 callers: write 1 to 100000"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"bench"}, c.args...), &stdout, &stderr)
		if code != exitFailed || !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
			t.Errorf("weir bench %s: exit code %d, %q on stdout, stderr:\n%swant %q", strings.Join(c.args, " "), code, stdout.String(), stderr.String(), c.want)
		}
	}
}

// Ctrl-C ends a run, and the floor with it.
func TestBenchInterrupted(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"bench.yaml": mustRules(t)}})
	process := servers.Start(t, "weir bench", servers.WeirBinary(t),
		"bench", weir.GRPC(), "--floor", "--keys", "10", "--duration", "1h")
	servers.Eventually(t, "the floor runs", func() bool { return len(children(t, process.PID())) == 1 })
	floor := children(t, process.PID())[0]
	servers.Eventually(t, "the load has begun", func() bool {
		_, body := weir.Get("/metrics")
		return strings.Contains(body, `rule="uniform"`)
	})
	process.Signal(os.Interrupt)
	var exit *exec.ExitError
	if err := process.Err(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("it ended with %v:\n%s", err, process.Log())
	}
	if !strings.Contains(process.Log(), "interrupted before there was a result") {
		t.Errorf("it said:\n%s", process.Log())
	}
	if _, err := os.Stat("/proc/" + floor); err == nil {
		t.Errorf("the floor, process %s, runs on", floor)
	}
}

func mustRules(t *testing.T) string {
	t.Helper()
	text, err := bench.Rules("weir")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// children are the processes that a process has started.
func children(t *testing.T, pid int) []string {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err == nil { // the thread may have ended
			all = append(all, strings.Fields(string(text))...)
		}
	}
	return all
}

// shortDir is a folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
