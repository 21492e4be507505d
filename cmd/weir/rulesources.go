package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/ruleset"
)

// maxReady bounds what is read of a server's answer.
const maxReady = 1 << 20

func newRulesSources() *cobra.Command {
	var (
		transport transportOptions
		address   string
		format    string
	)
	command := &cobra.Command{
		Use:   "sources",
		Short: "Show where the rules of a running server come from, and which version of them is in force",
		Long: `sources prints what each source contributes to the rules in force, in the order of their precedence: rule files (their
version is a hash), a control plane (its version_info) and the rule store (its revision). It asks /readyz on the server's
HTTP port, which needs no token.

Exit status: 0 printed, 2 no answer.`,
		Example: `  weir rules sources
  weir rules sources --url http://limits.example:8080 -o json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			sources, err := transport.ruleSources(command.Context(), address)
			if err != nil {
				return err
			}
			return printAs(command.OutOrStdout(), format, sources, func(w io.Writer) {
				fmt.Fprintln(w, "SOURCE\tVERSION\tRULES\tSINCE\tPROBLEM")
				for i := range sources {
					s := &sources[i]
					since, version := "-", "-"
					if !s.Since.IsZero() {
						since, version = s.Since.UTC().Format(time.RFC3339), s.Version
					}
					fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", shown(s.Source), shown(version), s.Rules, since, shown(s.Problem))
				}
			})
		},
	}
	transport.flags(command, "URL")
	formatFlag(command, &format)
	command.Flags().StringVar(&address, "url", "http://localhost:8080", "`URL` of the server's HTTP port; https with --tls")
	return command
}

// ruleSources asks a server where its rules come from. A server that is not ready answers too.
func (o *transportOptions) ruleSources(ctx context.Context, address string) ([]ruleset.State, error) {
	settings, err := o.config()
	if err != nil {
		return nil, err
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, fmt.Errorf("--url %q: write one such as http://localhost:8080", address)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/readyz", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: settings}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s did not answer: is weir serving there? Name its HTTP port with --url: %w", address, err)
	}
	defer response.Body.Close()
	var answer struct {
		Ready *bool           `json:"ready"`
		Rules []ruleset.State `json:"rules"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxReady)).Decode(&answer); err != nil || answer.Ready == nil {
		return nil, fmt.Errorf("%s answered %s, but not as weir does: name its HTTP port with --url", address, response.Status)
	}
	return answer.Rules, nil
}
