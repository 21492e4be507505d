package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"
)

// The forms in which the commands of the API print.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

func formatFlag(command *cobra.Command, format *string) {
	command.Flags().StringVarP(format, "output", "o", formatTable, "how to print: table, json or yaml")
}

func checkFormat(format string) error {
	switch format {
	case formatTable, formatJSON, formatYAML:
		return nil
	default:
		return fmt.Errorf("unknown output %q: write -o table, -o json or -o yaml", format)
	}
}

// printAs prints value as JSON or YAML, or has table print it.
func printAs(out io.Writer, format string, value any, table func(w io.Writer)) error {
	switch format {
	case formatJSON:
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case formatYAML:
		encoder := yaml.NewEncoder(out)
		encoder.SetIndent(2)
		if err := encoder.Encode(value); err != nil {
			return err
		}
		return encoder.Close()
	default:
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		table(w)
		return w.Flush()
	}
}

// shown makes text of somebody else fit for a terminal and for one cell of a table.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return '\uFFFD'
		}
		return r
	}, text)
}
