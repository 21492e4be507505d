package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/client"
)

func newRules() *cobra.Command {
	command := &cobra.Command{
		Use:   "rules",
		Short: "List, show, apply and delete the rules of a running server",
		Long: `rules works on the rules of a running server, through its API: those made there and, to look at, those of its rule
files. RULE is a rule's ID, or SCOPE:PATTERN (user:*, endpoint:/api/v1/orders).

list and get need the role sys_auditor, apply sys_operator, delete and apply --prune sys_admin.`,
		Example: `  weir rules list
  weir rules get 'user:*' -o yaml
  weir rules apply -f rules.yaml
  weir rules delete 'user:*'
  WEIRCTL_SERVER=limits.example:443 WEIRCTL_TOKEN=$TOKEN weir rules list --tls`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newRulesList(), newRulesSources(), newRulesGet(), newRulesApply(), newRulesDelete())
	return command
}

func newRulesList() *cobra.Command {
	var (
		server connection
		format string
		filter client.RuleFilter
		source string
	)
	command := &cobra.Command{
		Use:   "list",
		Short: "List the rules of a running server",
		Long: `list prints all rules: those of rule files and of a control plane first, then those made through the API in the order of
their creation.
What it prints with -o yaml is what 'weir rules apply' reads.

Exit status: 0 listed, 2 no answer.`,
		Example: `  weir rules list
  weir rules list --scope user --enabled
  weir rules list --source api -o yaml > rules.yaml`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			if source != "" && source != "api" && !readOnly(source) {
				return fmt.Errorf("--source %q: write api, file or xds", source)
			}
			return server.with(command.Context(), func(ctx context.Context, c *client.Client) error {
				rules := []client.Rule{}
				for rule, err := range c.AllRules(ctx, filter) {
					if err != nil {
						return err
					}
					if source == "" || rule.Source == source {
						rules = append(rules, rule)
					}
				}
				return printAs(command.OutOrStdout(), format, rules, func(w io.Writer) { tableOf(w, rules) })
			})
		},
	}
	server.flags(command)
	formatFlag(command, &format)
	flags := command.Flags()
	flags.StringVar(&filter.Scope, "scope", "", "only rules of this `SCOPE`: service, user or endpoint")
	flags.BoolVar(&filter.EnabledOnly, "enabled", false, "only rules that are enabled")
	flags.StringVar(&source, "source", "", "only rules of this `SOURCE`: api, file or xds")
	return command
}

// readOnly tells whether rules of a source cannot be changed through the API: those of files and of a control plane.
func readOnly(source string) bool { return source == "file" || source == "xds" }

func tableOf(w io.Writer, rules []client.Rule) {
	fmt.Fprintln(w, "RULE\tLIMIT\tALGORITHM\tENABLED\tSOURCE\tNAME\tID")
	for i := range rules {
		r := &rules[i]
		enabled := strconv.FormatBool(r.Enabled)
		if r.Conflict != "" {
			enabled = "conflict"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shown(ruleKey(r)), allowance(r), algorithm(r), enabled, r.Source, shown(r.Name), r.ID)
	}
}

// ruleKey is how a rule is called: SCOPE:PATTERN, or for a file's rule of another form its place in its domain.
func ruleKey(r *client.Rule) string {
	if r.Scope == "" && r.IdentifierPattern == "" {
		return r.Domain + "|" + r.Path
	}
	return r.Key()
}

// allowance is what a rule allows, in a few words.
func allowance(r *client.Rule) string {
	switch {
	case r.Action != "" && r.Action != "limit":
		return r.Action
	case len(r.Limits) == 0 && r.WindowSeconds == 0:
		return "unlimited"
	case len(r.Limits) == 1 && r.Limits[0].Calendar != "":
		return fmt.Sprintf("%d per %s", r.Limit, r.Limits[0].Calendar)
	}
	text := fmt.Sprintf("%d per %s", r.Limit, per(time.Duration(r.WindowSeconds)*time.Second))
	if r.WindowSeconds == 0 && len(r.Limits) > 0 {
		text = fmt.Sprintf("%d per %s", r.Limit, per(time.Duration(r.Limits[0].WindowMilliseconds)*time.Millisecond))
	}
	if len(r.Limits) > 1 {
		text += fmt.Sprintf(" (+%d more)", len(r.Limits)-1)
	}
	return text
}

func algorithm(r *client.Rule) string {
	if r.Algorithm == "" {
		return "-"
	}
	return r.Algorithm
}

// per is a window as people write it: 1m, 36h.
func per(window time.Duration) string {
	text := window.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func newRulesGet() *cobra.Command {
	var (
		server connection
		format string
	)
	command := &cobra.Command{
		Use:   "get RULE",
		Short: "Show one rule of a running server",
		Long: `get prints the rule with an ID, or the one for SCOPE:PATTERN.

Exit status: 0 printed, 2 no such rule or no answer.`,
		Example: `  weir rules get 'user:*'
  weir rules get 0199c1c2-6e1e-7c3e-9a53-4dbeef6c1c11 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return server.with(command.Context(), func(ctx context.Context, c *client.Client) error {
				rule, err := findRule(ctx, c, args[0])
				if err != nil {
					return err
				}
				return printAs(command.OutOrStdout(), format, rule, func(w io.Writer) { describeRule(w, &rule) })
			})
		},
	}
	server.flags(command)
	formatFlag(command, &format)
	return command
}

// findRule returns the rule with an ID, or the one for SCOPE:PATTERN; of two, that in force.
func findRule(ctx context.Context, c *client.Client, name string) (client.Rule, error) {
	scope, _, isKey := strings.Cut(name, ":")
	if !isKey {
		rule, err := c.GetRule(ctx, name)
		if err != nil {
			return rule, fmt.Errorf("rule %s: %w", name, err)
		}
		return rule, nil
	}
	var found client.Rule
	for rule, err := range c.AllRules(ctx, client.RuleFilter{Scope: scope}) {
		if err != nil {
			return client.Rule{}, err
		}
		if rule.Key() == name && (found.ID == "" || found.Conflict != "") {
			found = rule
		}
	}
	if found.ID == "" {
		return client.Rule{}, fmt.Errorf("rule %s: %w", name, client.ErrNotFound)
	}
	return found, nil
}

func describeRule(w io.Writer, r *client.Rule) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, shown(fmt.Sprintf(format, args...)))
	}
	row("rule", "%s", ruleKey(r))
	row("name", "%s", r.Name)
	row("id", "%s", r.ID)
	switch {
	case len(r.Limits) > 0:
		for i := range r.Limits {
			row("limit", "%s", limitText(&r.Limits[i]))
		}
	case r.WindowSeconds > 0:
		row("limit", "%s", specText(r.Limit, r.WindowSeconds, r.Algorithm, r.Burst))
	}
	if r.Action != "" {
		row("action", "%s", r.Action)
	}
	row("enabled", "%t", r.Enabled)
	if r.Conflict != "" {
		row("conflict", "%s", r.Conflict)
	}
	row("source", "%s", r.Source)
	if r.Domain != "" {
		row("domain", "%s", r.Domain)
	}
	if r.Version > 0 {
		row("version", "%d", r.Version)
	}
	if !r.CreatedAt.IsZero() {
		row("created", "%s", r.CreatedAt.UTC().Format(time.RFC3339))
		row("updated", "%s", r.UpdatedAt.UTC().Format(time.RFC3339))
	}
}

func limitText(l *client.RuleLimit) string {
	window := l.Calendar
	if window == "" {
		window = per(time.Duration(l.WindowMilliseconds) * time.Millisecond)
	}
	text := fmt.Sprintf("%d per %s, %s", l.Limit, window, l.Algorithm)
	if l.Burst > 0 {
		text += fmt.Sprintf(", burst %d", l.Burst)
	}
	if l.Kind == "quota" {
		text += ", quota"
	}
	return text
}

func specText(limit, windowSeconds int64, algorithm string, burst int64) string {
	text := fmt.Sprintf("%d per %s, %s", limit, per(time.Duration(windowSeconds)*time.Second), algorithm)
	if burst > 0 {
		text += fmt.Sprintf(", burst %d", burst)
	}
	return text
}

func newRulesDelete() *cobra.Command {
	var (
		server connection
		format string
	)
	command := &cobra.Command{
		Use:   "delete RULE...",
		Short: "Delete rules of a running server that were made through the API",
		Long: `delete deletes the rules with these IDs, or those for SCOPE:PATTERN, one after the other. A rule that was changed after
delete has looked at it is left alone.

Exit status: 0 all deleted, 2 not all of them, or no answer.`,
		Example: `  weir rules delete 'user:*'
  weir rules delete 0199c1c2-6e1e-7c3e-9a53-4dbeef6c1c11`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return server.with(command.Context(), func(ctx context.Context, c *client.Client) error {
				deleted := []client.Rule{}
				var failed error
				for _, name := range args {
					rule, err := deleteRule(ctx, c, name)
					if err != nil {
						failed = err
						break
					}
					deleted = append(deleted, rule)
				}
				err := printAs(command.OutOrStdout(), format, deleted, func(w io.Writer) {
					for i := range deleted {
						fmt.Fprintf(w, "deleted %s (%s)\n", shown(ruleKey(&deleted[i])), deleted[i].ID)
					}
				})
				if failed != nil {
					return failed
				}
				return err
			})
		},
	}
	server.flags(command)
	formatFlag(command, &format)
	return command
}

func deleteRule(ctx context.Context, c *client.Client, name string) (client.Rule, error) {
	rule, err := findRule(ctx, c, name)
	if err != nil {
		return rule, err
	}
	if err := c.DeleteRule(ctx, rule.ID, rule.Version); err != nil {
		return rule, fmt.Errorf("delete %s: %w", name, err)
	}
	return rule, nil
}
