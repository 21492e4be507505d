package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/client"
)

type applyOptions struct {
	file               string
	prune, dryRun, yes bool
	format             string
}

func newRulesApply() *cobra.Command {
	var (
		server  connection
		options applyOptions
	)
	command := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make the rules of a running server those of a file",
		Long: `apply compares the rules of a file with those made through the server's API, shows what it would create (+), change (~) and
delete (-), asks, and does it. Rules that the file does not name stay, unless --prune deletes them. Rules of the server's rule
files are not touched. Each change is refused if somebody else has changed the rule since it was compared; the changes
before it stay.

The file is a YAML list of rules in the field names of the REST API:

  - scope: user                  # service, user or endpoint
    identifier_pattern: "*"      # *, an exact value or a wildcard
    limit: 100
    window_seconds: 60
    algorithm: token_bucket      # the default; also fixed_window, sliding_window, sliding_log, leaky_bucket
    burst: 150                   # of a bucket; default: the algorithm's own
    name: everybody              # default: user-*
    enabled: true                # the default

What 'weir rules list -o yaml' prints can be applied as it is: id finds a rule whose scope or pattern is to change, version
refuses to change another version, and its other fields are ignored.

Exit status: 0 applied or nothing to do, 1 declined, or with --dry-run there is something to do, 2 failed.`,
		Example: `  weir rules apply -f rules.yaml
  weir rules apply -f rules.yaml --prune --yes
  weir rules apply -f rules.yaml --dry-run -o json
  weir rules list --source api -o yaml | sed 's/limit: 100$/limit: 200/' | weir rules apply -f - --yes`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return apply(command, &server, &options) },
	}
	server.flags(command)
	formatFlag(command, &options.format)
	flags := command.Flags()
	flags.StringVarP(&options.file, "file", "f", "", "`FILE` of rules, - for standard input (required)")
	flags.BoolVar(&options.prune, "prune", false, "delete the rules that the file does not name")
	flags.BoolVar(&options.dryRun, "dry-run", false, "show what would be done, and do nothing")
	flags.BoolVarP(&options.yes, "yes", "y", false, "do not ask")
	return command
}

func apply(command *cobra.Command, server *connection, options *applyOptions) error {
	if err := checkFormat(options.format); err != nil {
		return err
	}
	if options.file == "" {
		return errors.New("-f is missing: name the file of rules, or - for standard input")
	}
	in := command.InOrStdin()
	if !options.yes && !options.dryRun && (options.file == "-" || !isTerminal(in)) {
		return errors.New("there is no terminal to ask on: add --yes to apply, or --dry-run to look")
	}
	wanted, skipped, err := readRules(options.file, in)
	if err != nil {
		return err
	}
	if skipped > 0 {
		fmt.Fprintf(command.ErrOrStderr(), "weir: left out %s of the server's rule files, which only those can change\n", count(skipped, "rule"))
	}
	return server.with(command.Context(), func(ctx context.Context, c *client.Client) error {
		var have []client.Rule
		for rule, err := range c.AllRules(ctx, client.RuleFilter{}) {
			if err != nil {
				return err
			}
			have = append(have, rule)
		}
		changes, err := newPlan(wanted, have, options.prune)
		if err != nil {
			return fmt.Errorf("%s: %w", options.file, err)
		}
		return options.carryOut(ctx, c, changes, in, command.OutOrStdout())
	})
}

// carryOut shows a plan, asks where it has to, and does it. People see it before they are asked; JSON and YAML come in the
// end and tell what was done.
func (o *applyOptions) carryOut(ctx context.Context, c *client.Client, p *plan, in io.Reader, out io.Writer) error {
	ask := !o.yes && !o.dryRun && len(p.Changes) > 0
	if o.format == formatTable || ask {
		if err := printAs(out, formatTable, nil, p.print); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", p.summary())
	}
	if o.dryRun {
		if err := o.report(out, p); err != nil {
			return err
		}
		if len(p.Changes) > 0 {
			return errNo
		}
		return nil
	}
	if ask && !confirmed(in, out) {
		fmt.Fprintln(out, "nothing was changed")
		return errNo
	}
	failed := p.apply(ctx, c)
	if err := o.report(out, p); err != nil {
		return err
	}
	if failed == nil && o.format == formatTable && len(p.Changes) > 0 {
		fmt.Fprintln(out, "applied")
	}
	return failed
}

func (o *applyOptions) report(out io.Writer, p *plan) error {
	if o.format == formatTable {
		return nil
	}
	return printAs(out, o.format, p, nil)
}

// confirmed asks on a terminal. Everything but yes is no.
func confirmed(in io.Reader, out io.Writer) bool {
	fmt.Fprint(out, "Apply? [y/N] ")
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(out)
		return false
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	default:
		return false
	}
}

func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}
