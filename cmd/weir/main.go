// Command weir is a rate limiter for API gateways.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	_ "time/tzdata" // calendar windows have time zones, and the image has no zone files

	"github.com/spf13/cobra"
)

// The exit codes of every command, so that scripts can tell an answer from a failure.
const (
	exitOK     = 0
	exitNo     = 1 // a clear "no": the request is denied, the rules are not valid
	exitFailed = 2 // no answer: a wrong flag, a file that cannot be read, a server that is away
)

// errNo ends a command with exitNo. The command has already printed why.
var errNo = errors.New("no")

func main() {
	os.Exit(run(context.Background(), arguments(os.Args), os.Stdout, os.Stderr))
}

// arguments are those of a command line. A binary that was started under the name of envoyproxy/ratelimit's takes its place.
func arguments(line []string) []string {
	if len(line) > 0 && filepath.Base(line[0]) == ratelimitName {
		return append([]string{ratelimitName}, line[1:]...)
	}
	return line[min(1, len(line)):]
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errNo):
		return exitNo
	default:
		fmt.Fprintf(stderr, "weir: %v\n", err)
		return exitFailed
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Limit request rates for Envoy, Kong and services",
		Long: `weir limits request rates for API gateways. It answers Envoy's RateLimitService v3 from
rules in YAML files that are reloaded while it runs, and counts in memory or in Redis.

  weir serve                                    serve the rules of config/rules
  weir validate config/rules                    check rule files before they are used
  weir explain --rules config/rules edge user=ann   which rule a request meets, and why
  weir check localhost:50051 edge user=ann      ask a running server
  weir rules list                               the rules of a running server, through its API
  weir ratelimit                                take envoyproxy/ratelimit's place, with its environment
  weir bench localhost:50051                    say what a decision of it costs

Exit status: 0 yes or done, 1 no (denied, not valid), 2 no answer (wrong flags, server away).`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w: see '%s --help'", err, command.CommandPath())
	})
	root.AddCommand(newServe(), newValidate(), newExplain(), newCheck(), newRules(), newUsage(), newReset(), newToken(), newRatelimit(), newMigrate(), newBench(), newBenchFloor(), newVersion())
	return root
}
