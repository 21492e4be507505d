package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/client"
)

func newUsage() *cobra.Command {
	var (
		server connection
		format string
	)
	command := &cobra.Command{
		Use:   "usage RULE [IDENTIFIER]",
		Short: "Show how much of a rule's limit is used, without charging it",
		Long: `usage prints what a rule's counters say. A rule for many identifiers (user:*) has a counter for each: name the one.
RULE is a rule's ID, or SCOPE:PATTERN. Needs the role sys_auditor.

Exit status: 0 printed, 2 no such rule or no answer.`,
		Example: `  weir usage 'user:*' user-001
  weir usage endpoint:/api/v1/orders -o json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			subject := ""
			if len(args) == 2 {
				subject = args[1]
			}
			return server.with(command.Context(), func(ctx context.Context, c *client.Client) error {
				rule, err := findRule(ctx, c, args[0])
				if err != nil {
					return err
				}
				found, err := c.Usage(ctx, rule.ID, subject)
				if err != nil {
					return fmt.Errorf("rule %s: %w", args[0], err)
				}
				result := newState(&found)
				return printAs(command.OutOrStdout(), format, result, func(w io.Writer) { result.table(w, &rule, subject) })
			})
		},
	}
	server.flags(command)
	formatFlag(command, &format)
	return command
}

// state is what usage prints, with the field names of the REST API.
type state struct {
	RuleID        string `json:"rule_id" yaml:"rule_id"`
	RuleName      string `json:"rule_name" yaml:"rule_name"`
	Limit         int64  `json:"limit" yaml:"limit"`
	WindowSeconds int64  `json:"window_seconds" yaml:"window_seconds"`
	Algorithm     string `json:"algorithm" yaml:"algorithm"`
	Enabled       bool   `json:"enabled" yaml:"enabled"`
	Used          *int64 `json:"used,omitempty" yaml:"used,omitempty"`
	Remaining     *int64 `json:"remaining,omitempty" yaml:"remaining,omitempty"`
	ResetAt       *int64 `json:"reset_at,omitempty" yaml:"reset_at,omitempty"`
}

func newState(u *client.Usage) state {
	s := state{
		RuleID: u.RuleID, RuleName: u.RuleName, Limit: u.Limit, WindowSeconds: u.WindowSeconds, Algorithm: u.Algorithm, Enabled: u.Enabled,
	}
	if u.Counted {
		s.Used, s.Remaining = &u.Used, &u.Remaining
		if !u.ResetAt.IsZero() {
			s.ResetAt = new(u.ResetAt.Unix())
		}
	}
	return s
}

func (s *state) table(w io.Writer, rule *client.Rule, subject string) {
	fmt.Fprintf(w, "rule\t%s\n", shown(ruleKey(rule)))
	if subject != "" {
		fmt.Fprintf(w, "identifier\t%s\n", shown(subject))
	}
	fmt.Fprintf(w, "limit\t%s\n", specText(s.Limit, s.WindowSeconds, s.Algorithm, rule.Burst))
	if !s.Enabled {
		fmt.Fprintln(w, "enabled\tfalse")
	}
	if s.Used == nil {
		fmt.Fprintln(w, "used\tnothing is counted")
		return
	}
	fmt.Fprintf(w, "used\t%d\nremaining\t%d\n", *s.Used, *s.Remaining)
	if s.ResetAt != nil {
		fmt.Fprintf(w, "reset at\t%s\n", time.Unix(*s.ResetAt, 0).UTC().Format(time.RFC3339))
	}
}
