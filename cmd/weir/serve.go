package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/app"
	"github.com/weirhq/weir/pkg/config"
)

// defaultConfig is read if it exists and no other file is named.
const defaultConfig = "config/weir.yaml"

type serveOptions struct {
	config string
	rules  []string
	set    []string
	quiet  bool
}

func newServe() *cobra.Command {
	var options serveOptions
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve Envoy's RateLimitService by rules in YAML files",
		Long: `serve answers rate limit requests until it gets SIGTERM or SIGINT: then health says NOT_SERVING, calls go on
for server.drain_delay, end, and the process stops; a second signal stops it at once. SIGHUP loads the rules again, which
also happens by itself when their files change.

Settings come, the first one wins, from flags, the environment (WEIR_REDIS_URL for redis.url), the configuration file, and
the defaults. The README lists them all.`,
		Example: `  weir serve
  weir serve --config /etc/weir/weir.yaml --rules /etc/weir/rules
  weir serve --set redis.url=redis://localhost:6379 --set log.format=json
  WEIR_SERVER_GRPC_PORT=9000 weir serve --rules rules.yaml`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return serve(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), options, command.Flags().Changed("config"))
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.config, "config", defaultConfig, "`FILE` of settings; the default one may be missing")
	flags.StringSliceVar(&options.rules, "rules", nil, "rule `FILE|DIR`, may be given several times (default: rules.paths, config/rules)")
	flags.StringArrayVar(&options.set, "set", nil, "`SETTING=VALUE`, such as server.port=9090; may be given several times")
	flags.BoolVarP(&options.quiet, "quiet", "q", false, "do not print the greeting")
	return command
}

func serve(ctx context.Context, stdout, stderr io.Writer, options serveOptions, named bool) error {
	settings, err := options.load(named)
	if err != nil {
		return err
	}
	run := app.Options{Config: settings, Log: stderr, Greeting: stdout}
	if options.quiet {
		run.Greeting = nil
	}
	return runServer(ctx, run)
}

// runServer runs a server until a signal ends it.
func runServer(ctx context.Context, run app.Options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	hurry := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	go func() {
		<-signals
		stop()
		<-signals
		close(hurry)
	}()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	run.Build, run.Reload, run.Hurry = app.BuildInfo(version), reload, hurry
	return app.Run(ctx, run)
}

// load reads the settings. named tells that the user has named the file, so that it must exist.
func (o serveOptions) load(named bool) (*config.Config, error) {
	flags, err := assignments(o.set)
	if err != nil {
		return nil, err
	}
	source := config.Source{File: o.config, Environ: os.Environ(), Flags: flags}
	if len(o.rules) > 0 {
		for _, path := range o.rules {
			if strings.Contains(path, ",") {
				return nil, fmt.Errorf("--rules %q: a path with a comma has to be written in the configuration file", path)
			}
		}
		source.Flags["rules.paths"] = strings.Join(o.rules, ",")
	}
	if !named {
		if _, err := os.Stat(source.File); errors.Is(err, fs.ErrNotExist) {
			source.File = ""
		}
	}
	settings, err := config.Load(source)
	if errors.Is(err, fs.ErrNotExist) && named {
		return nil, fmt.Errorf("%w: name a file that exists with --config, or leave it out for the defaults (%s)", err, filepath.Clean(defaultConfig))
	}
	return settings, err
}

// assignments reads what --set was given, by the path of the setting.
func assignments(set []string) (map[string]string, error) {
	flags := make(map[string]string, len(set))
	for _, assignment := range set {
		path, value, ok := strings.Cut(assignment, "=")
		if !ok {
			return nil, fmt.Errorf("--set %q: write SETTING=VALUE, such as --set server.port=9090", assignment)
		}
		flags[path] = value
	}
	return flags, nil
}
