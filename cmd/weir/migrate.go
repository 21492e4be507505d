package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/dropin"
	"github.com/weirhq/weir/pkg/rules"
)

// maxManifest bounds what is read of an environment or of manifests, in bytes.
const maxManifest = 8 << 20

func newMigrate() *cobra.Command {
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Write weir's configuration for what another rate limiter is told",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newMigrateRatelimit())
	return command
}

type migrateOptions struct{ env, deployment, container string }

func newMigrateRatelimit() *cobra.Command {
	var options migrateOptions
	command := &cobra.Command{
		Use:   "envoyproxy-ratelimit [--env FILE | --deployment FILE] [FILE|DIR...]",
		Short: "Write the configuration that does what an envoyproxy/ratelimit's environment says",
		Long: `envoyproxy-ratelimit reads the environment that an envoyproxy/ratelimit is started with, and prints a configuration for
'weir serve' that does the same, with every difference that its users would notice as a comment. Rule files are checked.

The environment is a file of NAME=VALUE lines, or the manifest of a Kubernetes Deployment (with the ConfigMaps that it
takes values from, if they stand in the same file); - is the standard input; without either it is this process's own.
Passwords are not printed: comments say which settings want them.

This is for those who want weir's own configuration: 'weir ratelimit' takes the environment as it is.

Exit status: 0 done, 1 the environment or the rules are not valid, 2 a wrong flag or a file that cannot be read.`,
		Example: `  weir migrate envoyproxy-ratelimit --env ratelimit.env config/ > weir.yaml
  kubectl get deployment ratelimit -o yaml | weir migrate envoyproxy-ratelimit --deployment -`,
		RunE: func(command *cobra.Command, args []string) error {
			return migrate(command.InOrStdin(), command.OutOrStdout(), command.ErrOrStderr(), options, args)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.env, "env", "", "`FILE` of NAME=VALUE lines")
	flags.StringVar(&options.deployment, "deployment", "", "`FILE` of Kubernetes manifests")
	flags.StringVar(&options.container, "container", "", "`NAME` of the container, where there are several")
	command.MarkFlagsMutuallyExclusive("env", "deployment")
	return command
}

func migrate(in io.Reader, stdout, stderr io.Writer, options migrateOptions, paths []string) error {
	environment, err := options.read(in)
	if err != nil {
		return err
	}
	translated, err := dropin.Translate(environment.Variables, dropin.Options{})
	if err == nil {
		_, err = config.Load(config.Source{Base: translated.Settings})
	}
	if problems, ok := errors.AsType[config.Problems](err); ok {
		fmt.Fprintln(stderr, problems)
		return errNo
	} else if err != nil {
		return err
	}
	file, secrets, err := config.Write(translated.Settings)
	if err != nil {
		return err
	}
	checked, err := checkRules(stderr, paths, translated)
	if err != nil {
		return err
	}

	var out strings.Builder
	fmt.Fprintf(&out, "# What this environment of envoyproxy/ratelimit says, for 'weir serve --config'. What is not here has its default.\n%s", file)
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&out, "\n# %s\n", title)
			for _, line := range lines {
				fmt.Fprintf(&out, "# - %s\n", line)
			}
		}
	}
	section("Set these by their variables, or by the _file settings beside them: passwords are not written here.", secretLines(secrets))
	section("Values that are not known here:", noticeLines(environment.Unknown))
	section("Variables:", noticeLines(append(translated.Notices, dropin.Strangers(environment.Variables)...)))
	section("What users will notice:", dropin.Differences(environment.Variables))
	section("Rules:", checked)
	_, err = io.WriteString(stdout, out.String())
	return err
}

func (o *migrateOptions) read(in io.Reader) (dropin.Environment, error) {
	path := o.env + o.deployment
	if path == "" {
		return dropin.Environment{Variables: os.Environ()}, nil
	}
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return dropin.Environment{}, err
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err != nil {
		return dropin.Environment{}, err
	}
	if len(text) > maxManifest {
		return dropin.Environment{}, fmt.Errorf("%s: the file is larger than %d bytes: is it the right one?", path, maxManifest)
	}
	if o.deployment != "" {
		return dropin.ReadDeployment(text, o.container)
	}
	return dropin.ReadEnvironment(text)
}

// checkRules loads rule files as the configuration says they are loaded.
func checkRules(stderr io.Writer, paths []string, translated *dropin.Translation) ([]string, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	loaded, err := config.Load(config.Source{Base: translated.Settings})
	if err != nil {
		return nil, err
	}
	table, err := rules.Load(paths, rules.Options{DefaultDomain: loaded.Rules.DefaultDomain, MergeDomains: loaded.Rules.MergeDomains})
	if problems, ok := errors.AsType[rules.Problems](err); ok {
		for _, problem := range problems {
			fmt.Fprintln(stderr, problem)
		}
		return nil, errNo
	} else if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("%s of %s in %s: they mean the same here", count(table.Len(), "rule"), count(len(table.Domains()), "domain"), strings.Join(paths, ", "))}
	for _, warning := range table.Warnings() {
		lines = append(lines, warning.String())
	}
	return lines, nil
}

func secretLines(settings []string) []string {
	lines := make([]string, len(settings))
	for i, setting := range settings {
		lines[i] = fmt.Sprintf("%s: %s%s", setting, config.EnvPrefix, strings.ToUpper(strings.ReplaceAll(setting, ".", "_")))
	}
	return lines
}

func noticeLines(notices []dropin.Notice) []string {
	lines := make([]string, len(notices))
	for i, notice := range notices {
		lines[i] = notice.Variable + " " + notice.Text
	}
	return lines
}
