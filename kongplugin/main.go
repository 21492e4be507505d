// Command weir-ratelimit is weir's plugin for Kong: a plugin server that Kong starts, and talks to over a unix socket.
//
// Kong runs it twice: with -dump, to learn the plugin's name and configuration, and without, to serve. docs/kong.md says how to
// install and configure it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/weirhq/weir/kongplugin/internal/access"
	"github.com/weirhq/weir/kongplugin/internal/local"
	"github.com/weirhq/weir/kongplugin/internal/pluginserver"
	"github.com/weirhq/weir/kongplugin/internal/remote"
	"github.com/weirhq/weir/kongplugin/internal/schema"
	"github.com/weirhq/weir/kongplugin/internal/settings"
	"github.com/weirhq/weir/pkg/telemetry"
)

//go:generate go run . -schema schema.lua

// version is set by the linker.
var version = "dev"

// options are the command line.
type options struct {
	prefix     string
	dump       bool
	schema     string
	version    bool
	socketMode uint
	logLevel   string
	logFormat  string
}

func parse(args []string, usage io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet(schema.Name, flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.prefix, "kong-prefix", "/usr/local/kong", "Kong's prefix: the folder in which the socket is made")
	flags.BoolVar(&o.dump, "dump", false, "print what Kong wants to know about the plugin, and end")
	flags.StringVar(&o.schema, "schema", "", "write the plugin's schema.lua to this file (-: standard output), and end")
	flags.BoolVar(&o.version, "version", false, "print the version, and end")
	flags.UintVar(&o.socketMode, "socket-mode", 0, "permissions of the socket, such as 0660; 0: as the umask says. Needed if Kong's workers run as another user")
	flags.StringVar(&o.logLevel, "log-level", "info", "least level that is logged: debug, info, warn, error")
	flags.StringVar(&o.logFormat, "log-format", "text", "form of a line: text, json")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q: see -help", flags.Arg(0))
	case o.socketMode > 0o777:
		return nil, fmt.Errorf("-socket-mode %#o is out of range: write 0 to 0777", o.socketMode)
	case o.logFormat != "text" && o.logFormat != "json":
		return nil, fmt.Errorf("-log-format %q is unknown: write text or json", o.logFormat)
	}
	return o, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", schema.Name, err)
		os.Exit(1)
	}
}

// run does what the command line says, and serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	socket := filepath.Join(o.prefix, schema.Name+".socket")
	switch {
	case o.version:
		_, err = fmt.Fprintln(stdout, schema.Name, version)
		return err
	case o.schema == "-":
		_, err = io.WriteString(stdout, schema.Lua())
		return err
	case o.schema != "":
		return os.WriteFile(o.schema, []byte(schema.Lua()), 0o644)
	case o.dump:
		text, err := schema.Dump(socket)
		if err != nil {
			return fmt.Errorf("dump: %w", err)
		}
		_, err = stdout.Write(text)
		return err
	}
	level, err := telemetry.ParseLevel(o.logLevel)
	if err != nil {
		return fmt.Errorf("-log-level: %w", err)
	}
	logger := telemetry.NewLogger(stderr, telemetry.LogOptions{Level: level, JSON: o.logFormat == "json"})
	listener, err := listen(ctx, socket, os.FileMode(o.socketMode))
	if err != nil {
		return err
	}
	logger.InfoContext(ctx, "serving Kong", "socket", socket, "version", version)
	return serve(ctx, listener, logger)
}

func serve(ctx context.Context, listener *socketListener, logger *slog.Logger) error {
	engines, servers := &local.Pool{Logger: logger}, &remote.Pool{Logger: logger}
	plugin := access.NewPlugin(access.Backends{
		Remote:   func(s *settings.Settings) (access.Decider, error) { return decider(servers.Server(s)) },
		Embedded: func(s *settings.Settings) (access.Decider, error) { return decider(engines.Engine(s)) },
		StandIn:  func(s *settings.Settings) (access.Decider, error) { return decider(engines.StandIn(s)) },
	}, logger)
	return pluginserver.New(plugin, pluginserver.Options{Name: schema.Name, Logger: logger}).Serve(ctx, listener)
}

// decider turns a nil pointer into a nil interface.
func decider[D access.Decider](d D, err error) (access.Decider, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}
