package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/app"
)

// version is set by the linker (see Makefile).
var version string

func newVersion() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "version",
		Short: "Print weir's version and what it was built with",
		Example: `  weir version
  weir version -o json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			build := app.BuildInfo(version)
			out := command.OutOrStdout()
			switch output {
			case "text":
				_, err := fmt.Fprintf(out, "weir %s (%s, %s)\n", build.Version, build.Revision, build.Go)
				return err
			case "json":
				return json.NewEncoder(out).Encode(build)
			default:
				return unknownOutput(output)
			}
		},
	}
	outputFlag(command, &output)
	return command
}

// outputFlag adds -o, which every command that prints an answer has.
func outputFlag(command *cobra.Command, output *string) {
	command.Flags().StringVarP(output, "output", "o", "text", "how to print: text or json")
}

func unknownOutput(output string) error {
	return fmt.Errorf("unknown output %q: write -o text or -o json", output)
}
