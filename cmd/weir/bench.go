package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/bench"
)

type benchOptions struct {
	bench.Options
	output   string
	workload string
	expect   string
	statuses int
	against  []string
	pids     []string
	floor    bool
	envoy    string
	workers  int
	rules    string
}

func newBench() *cobra.Command {
	var options benchOptions
	command := &cobra.Command{
		Use:   "bench [NAME=]ADDRESS",
		Short: "Load a running server and say what a decision costs",
		Long: `bench sends requests to a RateLimitService v3, checks every reply, and prints throughput, latencies and, with --pid, the
processor time per call of the server's processes. Without --rate it is a closed loop: each caller sends its next call when the
last one is answered. With --rate calls are sent at random instants (Poisson), and a call's latency counts from the instant at
which it should have been sent.

--vs and --floor load other servers in turns with the first one and print ratios, paired by round; trust those alone on a machine
that others use too. The processor time of every --pid counts in every turn, so name the processes of all servers; --floor
measures its own.

--via-envoy starts the Envoy that it names in front of each server, on free ports, and sends HTTP requests through it: that is what a
gateway's users feel, and there a server costs more per call, because a gateway sends it few calls at a time. One request is under way
on each of 32 connections, over 10,000 keys; Envoy's processor time is shown apart.

ADDRESS is host:port or unix:PATH, in plain text. A server needs the rules that --print-rules prints. Exit status: 0 every reply
was right, 1 some were wrong or missing, 2 no result.`,
		Example: `  weir bench --print-rules weir > bench.yaml
  weir serve --rules bench.yaml &
  weir bench localhost:50051 --pid weir=$! --floor
  weir bench localhost:50051 --rate 10000 --duration 10s --workload three
  weir bench localhost:8081 --pid weir=$! --floor --via-envoy $(which envoy)
  weir bench new=localhost:50051 --vs old=localhost:50052 --rounds 9 -o json`,
		Args: func(command *cobra.Command, args []string) error {
			if options.rules != "" {
				return cobra.NoArgs(command, args)
			}
			return cobra.ExactArgs(1)(command, args)
		},
		RunE: func(command *cobra.Command, args []string) error {
			if options.rules != "" {
				return printRules(command.OutOrStdout(), options.rules)
			}
			if err := options.viaEnvoy(command.Flags().Changed); err != nil {
				return err
			}
			return runBench(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), args[0], options)
		},
	}
	flags := command.Flags()
	outputFlag(command, &options.output)
	flags.StringVar(&options.workload, "workload", string(bench.Uniform),
		"what is asked: uniform (many keys), hot (one key), over (over its limit) or three (the hot one and two uniform descriptors)")
	flags.IntVar(&options.Workload.Keys, "keys", 0, "`NUMBER` of different keys (default 100000; through Envoy 10000; for over 1)")
	flags.IntVar(&options.Callers, "callers", 64, "`NUMBER` of calls under way in a closed loop")
	flags.IntVar(&options.Connections, "connections", 4, "`NUMBER` of connections; 32 through Envoy")
	flags.StringVar(&options.envoy, "via-envoy", "", "`PATH` of an Envoy (1.40 or newer) to send HTTP requests through")
	flags.IntVar(&options.workers, "concurrency", 1, "`NUMBER` of worker threads of --via-envoy")
	flags.Float64Var(&options.Rate, "rate", 0, "calls per second of an open loop; 0: a closed loop")
	flags.DurationVar(&options.Duration, "duration", 2*time.Second, "how long each round measures")
	flags.DurationVar(&options.Warmup, "warmup", time.Second, "how long each round runs before it measures")
	flags.IntVar(&options.Rounds, "rounds", 5, "`NUMBER` of turns of each server")
	flags.DurationVar(&options.Timeout, "timeout", time.Second, "of a call; the server is told it as grpc-timeout")
	flags.Uint64Var(&options.Seed, "seed", 1, "of the random numbers; the same one makes the same load")
	flags.StringArrayVar(&options.against, "vs", nil, "`[NAME=]ADDRESS` of a server to compare with; may be given several times")
	flags.BoolVar(&options.floor, "floor", false, "compare with an empty grpc-go server, which is started for it")
	flags.StringArrayVar(&options.pids, "pid", nil, "`NAME=PID` of a process to measure; may be given several times")
	flags.StringVar(&options.Workload.Domain, "domain", "bench", "of the requests")
	flags.StringVar(&options.Workload.UniformKey, "uniform-key", "uniform", "`KEY` of the uniform descriptors")
	flags.StringVar(&options.Workload.HotKey, "hot-key", "hot", "`KEY` of the hot descriptor")
	flags.StringVar(&options.Workload.OverKey, "over-key", "over", "`KEY` of the descriptor that is over its limit")
	flags.StringVar(&options.expect, "expect", "", "what replies must say: OK, OVER_LIMIT or any (default: as the printed rules make it)")
	flags.IntVar(&options.statuses, "expect-statuses", 0, "`NUMBER` of statuses of each reply (default: one per descriptor)")
	flags.StringVar(&options.rules, "print-rules", "", "print the rules that the requests need, for a `SERVER`: weir, leases (weir with a lease of the hot key) or envoyproxy")
	flags.BoolVar(&options.Remote, "remote", false, "allow addresses that are not this machine's; make sure that the server is yours to load")
	return command
}

func printRules(out io.Writer, server string) error {
	text, err := bench.Rules(server)
	if err != nil {
		return fmt.Errorf("--print-rules: %w", err)
	}
	_, err = io.WriteString(out, text)
	return err
}

func runBench(ctx context.Context, stdout, stderr io.Writer, first string, options benchOptions) error {
	if options.output != "text" && options.output != "json" {
		return unknownOutput(options.output)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	if err := options.nonzero(); err != nil {
		return err
	}
	targets, err := options.targets(first)
	if err != nil {
		return err
	}
	if options.floor {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("--floor: %w", err)
		}
		floor, err := bench.StartFloor(ctx, targets[0].Address.Unix(), self, "bench-floor")
		if err != nil {
			return fmt.Errorf("--floor: %w", err)
		}
		defer floor.Close()
		targets = append(targets, floor.Target)
	}
	run := options.Options
	run.Workload.Kind = bench.Kind(options.workload)
	if run.Warmup == 0 {
		run.Warmup = -1 // none, as the user says
	}
	if terminal(stderr) {
		run.Progress = func(p bench.Progress) { fmt.Fprint(stderr, clearLine+progressLine(p)) }
	}
	report, err := bench.Run(ctx, targets, run)
	if run.Progress != nil {
		fmt.Fprint(stderr, clearLine)
	}
	switch {
	case errors.Is(err, bench.ErrRemote):
		return fmt.Errorf("%w; if it is yours to load, add --remote", err)
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted before there was a result")
	case err != nil:
		return err
	}
	if err := printReport(stdout, options.output, report); err != nil {
		return err
	}
	if report.Faults() > 0 {
		return errNo
	}
	return nil
}

func printReport(out io.Writer, output string, report *bench.Report) error {
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	return report.WriteText(out)
}

// nonzero refuses a zero where package bench would take it for its default, which is not what the user has written.
func (o benchOptions) nonzero() error {
	for _, flag := range []struct {
		name string
		zero bool
	}{
		{"callers", o.Callers == 0},
		{"connections", o.Connections == 0},
		{"rounds", o.Rounds == 0},
		{"duration", o.Duration == 0},
		{"timeout", o.Timeout == 0},
	} {
		if flag.zero {
			return fmt.Errorf("--%s is 0: write a greater one, or leave it out for the default", flag.name)
		}
	}
	return nil
}

// viaEnvoy has the load go through an Envoy, if there is one, where its own defaults hold.
func (o *benchOptions) viaEnvoy(changed func(flag string) bool) error {
	if o.envoy == "" {
		if changed("concurrency") {
			return errors.New("--concurrency is Envoy's: add --via-envoy PATH")
		}
		return nil
	}
	for _, name := range []string{"rate", "callers"} {
		if changed(name) {
			return fmt.Errorf("--%s does not go with --via-envoy: one request is under way on each connection, so write --connections", name)
		}
	}
	path, err := exec.LookPath(o.envoy)
	if err != nil {
		return fmt.Errorf("--via-envoy: %w", err)
	}
	if o.workers == 0 {
		return errors.New("--concurrency is 0: write a greater one, or leave it out for the default")
	}
	o.Envoy = &bench.Envoy{Path: path, Concurrency: o.workers}
	if !changed("connections") {
		o.Connections = 32
	}
	return nil
}

// targets are the first server and those to compare with. Every process counts for each of them.
func (o benchOptions) targets(first string) ([]bench.Target, error) {
	var processes []bench.Process
	for _, text := range o.pids {
		name, number, found := strings.Cut(text, "=")
		pid, err := strconv.Atoi(number)
		if !found || name == "" || err != nil || pid <= 0 {
			return nil, fmt.Errorf("--pid %q: write NAME=PID, such as --pid redis=1234", text)
		}
		processes = append(processes, bench.Process{Name: name, PID: pid})
	}
	var targets []bench.Target
	for _, text := range append([]string{first}, o.against...) {
		name, address := "", text
		if before, after, found := strings.Cut(text, "="); found && !strings.ContainsAny(before, ":/") {
			name, address = before, after
		}
		parsed, err := bench.ParseAddress(address)
		if err != nil {
			return nil, err
		}
		targets = append(targets, bench.Target{
			Name: name, Address: parsed, Processes: processes,
			Expect: bench.Expectation{Code: o.expect, Statuses: o.statuses},
		})
	}
	return targets, nil
}

// newBenchFloor is what --floor starts.
func newBenchFloor() *cobra.Command {
	return &cobra.Command{
		Use:    "bench-floor ADDRESS",
		Short:  "Serve OK to everything until standard input ends",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			address, err := bench.ParseAddress(args[0])
			if err != nil {
				return err
			}
			ctx, stop := context.WithCancel(command.Context())
			defer stop()
			// Whoever interrupts the run interrupts this process too; it stays until the run is done with it.
			signal.Ignore(syscall.SIGINT)
			go func() {
				_, _ = io.Copy(io.Discard, command.InOrStdin())
				stop()
			}()
			return bench.ServeFloor(ctx, address, command.OutOrStdout())
		},
	}
}

// clearLine makes a terminal forget the line that the cursor is on.
const clearLine = "\r\x1b[K"

func progressLine(p bench.Progress) string {
	line := p.Target + ": " + p.Phase
	if p.Round > 0 {
		line = fmt.Sprintf("%s: round %d of %d, %s", p.Target, p.Round, p.Rounds, p.Phase)
	}
	if p.CallsPerSecond > 0 {
		line += fmt.Sprintf(", %.0f calls/s", p.CallsPerSecond)
	}
	return line
}

func terminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}
