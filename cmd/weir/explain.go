package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

type explainOptions struct {
	rules     []string
	output    string
	keyPrefix string
	load      rules.Options
}

func newExplain() *cobra.Command {
	var options explainOptions
	command := &cobra.Command{
		Use:   "explain [--rules FILE|DIR] DOMAIN KEY=VALUE[,KEY=VALUE...]",
		Short: "Show which rule a descriptor meets, level by level, and which limits it charges",
		Long: `explain matches one descriptor against rule files, without a server. Commas separate the descriptor's entries;
a backslash takes the next character as it is.

Exit status: 0 a rule applies, 1 none does, 2 the rules are not valid or a wrong flag.`,
		Example: `  weir explain edge user=ann
  weir explain --rules config/rules edge plan=free,user=ann
  weir explain -o json edge remote_address=10.1.2.3`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			return explain(command.OutOrStdout(), args[0], args[1], options)
		},
	}
	outputFlag(command, &options.output)
	ruleFlags(command, &options.load)
	command.Flags().StringSliceVar(&options.rules, "rules", []string{"config/rules"}, "rule `FILE|DIR`, may be given several times")
	command.Flags().StringVar(&options.keyPrefix, "key-prefix", "ratelimit", "ratelimit.key_prefix of the server, for the counters' keys")
	return command
}

// explanation is what explain prints as JSON.
type explanation struct {
	Domain  string  `json:"domain"`
	Steps   []step  `json:"steps"`
	Reason  string  `json:"reason"`
	Rule    string  `json:"rule,omitempty"`
	RuleID  string  `json:"rule_id,omitempty"`
	Source  string  `json:"source,omitempty"`
	Action  string  `json:"action,omitempty"`
	Default bool    `json:"default,omitempty"`
	Limits  []limit `json:"limits"`
}

type step struct {
	Entry string   `json:"entry"`
	Tried []string `json:"tried"`
	Path  string   `json:"path,omitempty"`
}

type limit struct {
	Algorithm string `json:"algorithm"`
	Limit     int64  `json:"limit"`
	Burst     int64  `json:"burst,omitempty"`
	Window    string `json:"window"`
	Kind      string `json:"kind"`
	Lease     string `json:"lease,omitempty"`
	Key       string `json:"key"`

	text string // all of it but the key, in words
}

func explain(out io.Writer, domain, descriptor string, options explainOptions) error {
	if options.output != "text" && options.output != "json" {
		return unknownOutput(options.output)
	}
	entries, err := parseDescriptor(descriptor)
	if err != nil {
		return err
	}
	table, err := rules.Load(options.rules, options.load)
	if err != nil {
		return fmt.Errorf("the rules are not valid:\n%w", err)
	}
	limiter := engine.New(nil, engine.Options{Prefix: options.keyPrefix, DefaultDomain: options.load.DefaultDomain})
	limiter.SetTable(table)

	found := table.Explain(domain, entries)
	result := describe(limiter, found, entries)
	if options.output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(result)
	} else {
		err = printExplanation(out, found, result)
	}
	if err == nil && found.Match.Rule == nil {
		err = errNo
	}
	return err
}

func describe(limiter *engine.Limiter, found rules.Explanation, entries []ratelimit.Entry) explanation {
	result := explanation{Domain: found.Domain, Reason: found.Reason, Default: found.Match.Default, Steps: []step{}, Limits: []limit{}}
	for _, s := range found.Steps {
		result.Steps = append(result.Steps, step{s.Entry.Key + "=" + s.Entry.Value, s.Tried, s.Path})
	}
	rule := found.Match.Rule
	if rule == nil {
		return result
	}
	result.Rule, result.RuleID, result.Source = rule.Label(), rule.ID, rule.Source
	result.Action = action(rule)
	keys := limiter.Keys(found.Domain, entries)
	for i := range rule.Limits {
		l := &rule.Limits[i]
		shown := limit{Algorithm: l.Algorithm.String(), Limit: l.Count, Burst: l.Burst, Window: l.Per(), Kind: l.Kind.String(), text: l.String()}
		if l.Lease != (ratelimit.Lease{}) {
			shown.Lease = l.Lease.String()
		}
		if i < len(keys) {
			shown.Key = keys[i]
		}
		result.Limits = append(result.Limits, shown)
	}
	return result
}

// action says in words what the rule does.
func action(rule *ratelimit.Rule) string {
	var words []string
	switch {
	case rule.Disabled:
		words = append(words, "disabled")
	case rule.Unlimited:
		words = append(words, "unlimited")
	case rule.Action == ratelimit.ActionAllow:
		words = append(words, "allow without counting")
	case rule.Action == ratelimit.ActionDeny:
		words = append(words, "deny without counting")
	default:
		words = append(words, "limit")
	}
	if rule.Shadow {
		words = append(words, "in shadow mode: counted, never enforced")
	}
	if rule.QuotaMode {
		words = append(words, "in quota mode: over only when all descriptors in quota mode are")
	}
	if len(rule.Replaces) > 0 {
		words = append(words, "replaces "+strings.Join(rule.Replaces, ", "))
	}
	return strings.Join(words, "; ")
}

func printExplanation(out io.Writer, found rules.Explanation, result explanation) error {
	var text strings.Builder
	text.WriteString(found.String())
	if result.Rule != "" {
		fmt.Fprintf(&text, "\nrule    %s\nid      %s\nfrom    %s\naction  %s\n", result.Rule, result.RuleID, result.Source, result.Action)
		for _, l := range result.Limits {
			fmt.Fprintf(&text, "limit   %s\n        counted in %s\n", l.text, l.Key)
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}
