package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/app"
	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/dropin"
)

// ratelimitName is what envoyproxy/ratelimit's binary is called. Under this name the binary runs 'weir ratelimit'.
const ratelimitName = "ratelimit"

type ratelimitOptions struct {
	config string
	set    []string
}

func newRatelimit() *cobra.Command {
	var options ratelimitOptions
	command := &cobra.Command{
		Use:   ratelimitName,
		Short: "Take the place of envoyproxy/ratelimit, with its environment",
		Long: `ratelimit serves as envoyproxy/ratelimit does, by the same environment variables, rule files or xDS source, ports,
endpoints, metrics and counters in Redis. A binary named ratelimit does so by itself.

A variable that has no counterpart is answered by one line in the log that says what takes its place. Variables that begin
with WEIR_ are weir's own settings and beat those of envoyproxy/ratelimit; WEIR_CONFIG names a file of them.`,
		Example: `  REDIS_SOCKET_TYPE=tcp REDIS_URL=localhost:6379 RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit USE_STATSD=false weir ratelimit
  weir ratelimit --set log.level=debug`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return takePlace(command.Context(), command.ErrOrStderr(), options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.config, "config", os.Getenv(config.EnvFile), "`FILE` of weir's own settings, which beat the environment of envoyproxy/ratelimit")
	flags.StringArrayVar(&options.set, "set", nil, "`SETTING=VALUE`, such as log.level=debug; may be given several times")
	return command
}

func takePlace(ctx context.Context, stderr io.Writer, options ratelimitOptions) error {
	flags, err := assignments(options.set)
	if err != nil {
		return err
	}
	environ := os.Environ()
	translated, err := dropin.Translate(environ, dropin.Options{Readable: readable, Exists: exists})
	if err != nil {
		return err
	}
	settings, err := config.Load(config.Source{Base: translated.Settings, File: options.config, Environ: environ, Flags: flags})
	if err != nil {
		return err
	}
	return runServer(ctx, app.Options{Config: settings, Log: stderr, Notices: notices(translated.Notices)})
}

func notices(translated []dropin.Notice) []app.Notice {
	all := make([]app.Notice, len(translated))
	for i, notice := range translated {
		all[i] = app.Notice(notice)
	}
	return all
}

func readable(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
