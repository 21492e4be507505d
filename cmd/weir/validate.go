package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/rules"
)

func newValidate() *cobra.Command {
	var (
		output  string
		strict  bool
		options rules.Options
	)
	command := &cobra.Command{
		Use:   "validate FILE|DIR...",
		Short: "Check rule files before they are used",
		Long: `validate loads rule files as a server would and prints everything that is wrong with them, as
FILE:LINE:COLUMN: what is wrong: what to write instead. Rules that can never match are warnings.

Exit status: 0 valid, 1 not valid, 2 a wrong flag.`,
		Example: `  weir validate config/rules
  weir validate -o json rules.yaml
  weir validate --strict config/rules        # warnings count as errors`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return validate(command.OutOrStdout(), args, options, output, strict)
		},
	}
	outputFlag(command, &output)
	ruleFlags(command, &options)
	command.Flags().BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	return command
}

// ruleFlags adds the flags that say how rule files are read.
func ruleFlags(command *cobra.Command, options *rules.Options) {
	command.Flags().StringVar(&options.DefaultDomain, "default-domain", "k1s0", "domain of rules that name none")
	command.Flags().BoolVar(&options.MergeDomains, "merge-domains", false, "allow one domain in several files")
}

// report is what validate prints as JSON.
type report struct {
	Valid    bool      `json:"valid"`
	Rules    int       `json:"rules"`
	Domains  []string  `json:"domains"`
	Problems []problem `json:"problems"`
}

type problem struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Severity string `json:"severity"` // error or warning
	Message  string `json:"message"`
	Fix      string `json:"fix,omitempty"`
}

func validate(out io.Writer, paths []string, options rules.Options, output string, strict bool) error {
	if output != "text" && output != "json" {
		return unknownOutput(output)
	}
	result := report{Valid: true, Domains: []string{}, Problems: []problem{}}
	table, err := rules.Load(paths, options)
	var problems rules.Problems
	switch {
	case err == nil:
		result.Rules, result.Domains = table.Len(), table.Domains()
		problems = table.Warnings()
	case errors.As(err, &problems):
		result.Valid = false
	default:
		return err
	}
	warnings := 0
	for _, p := range problems {
		severity := "error"
		if p.Warning {
			severity = "warning"
			warnings++
		}
		result.Problems = append(result.Problems, problem{p.File, p.Line, p.Column, severity, p.Message, p.Fix})
	}
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(result); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Fprintln(out, p)
		}
		if result.Valid {
			fmt.Fprintf(out, "valid: %s in %s\n", count(result.Rules, "rule"), count(len(result.Domains), "domain"))
		} else {
			fmt.Fprintf(out, "not valid: %s\n", count(len(problems)-warnings, "error"))
		}
	}
	if !result.Valid || strict && warnings > 0 {
		return errNo
	}
	return nil
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
