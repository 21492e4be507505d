package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/client"
)

func newReset() *cobra.Command {
	var (
		server connection
		format string
	)
	command := &cobra.Command{
		Use:   "reset SCOPE IDENTIFIER",
		Short: "Set the counters of one identifier back, as if it had never been seen",
		Long: `reset sets the counters of one identifier back to never used, on every replica, whichever rule counts it. Needs the role
sys_operator.

Exit status: 0 reset, 2 refused or no answer.`,
		Example: `  weir reset user user-001
  weir reset endpoint /api/v1/orders`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return server.with(command.Context(), func(ctx context.Context, c *client.Client) error {
				message, err := c.Reset(ctx, args[0], args[1])
				if err != nil {
					return fmt.Errorf("reset %s:%s: %w", args[0], args[1], err)
				}
				result := struct {
					Success bool   `json:"success" yaml:"success"`
					Message string `json:"message" yaml:"message"`
				}{true, message}
				return printAs(command.OutOrStdout(), format, result, func(w io.Writer) { fmt.Fprintln(w, shown(message)) })
			})
		},
	}
	server.flags(command)
	formatFlag(command, &format)
	return command
}
