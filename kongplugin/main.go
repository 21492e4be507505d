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
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/weirhq/weir/kongplugin/internal/access"
	"github.com/weirhq/weir/kongplugin/internal/local"
	"github.com/weirhq/weir/kongplugin/internal/metrics"
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
	metrics    string
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
	flags.StringVar(&o.metrics, "metrics", "", "serve Prometheus metrics at /metrics of this host:port, or of the unix socket at this absolute path; empty: none")
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
	if _, _, err := net.SplitHostPort(o.metrics); o.metrics != "" && !filepath.IsAbs(o.metrics) && err != nil {
		return nil, fmt.Errorf("-metrics %q is no address: write host:port, or the absolute path of a socket", o.metrics)
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
	return serve(ctx, listener, o.metrics, logger)
}

// serve serves Kong, and metrics at an address unless it is empty.
func serve(ctx context.Context, listener *socketListener, address string, logger *slog.Logger) error {
	engines, servers := &local.Pool{Logger: logger}, &remote.Pool{Logger: logger}
	var shown *metrics.Metrics
	var recorder access.Recorder // nil, unless there are metrics
	if address != "" {
		shown = metrics.New(version)
		recorder, engines.Recorder = shown, shown
	}
	plugin := access.NewPlugin(access.Backends{
		Remote:   func(s *settings.Settings) (access.Decider, error) { return decider(servers.Server(s)) },
		Embedded: func(s *settings.Settings) (access.Decider, error) { return decider(engines.Engine(s)) },
		StandIn:  func(s *settings.Settings) (access.Decider, error) { return decider(engines.StandIn(s)) },
	}, logger, recorder)
	server := pluginserver.New(plugin, pluginserver.Options{Name: schema.Name, Logger: logger})
	if shown == nil {
		return server.Serve(ctx, listener)
	}
	shown.Gauge("connections", "Connections that Kong's workers have open; one for each event under way or denied and not yet closed.", server.Conns)
	shown.Gauge("instances", "Instances of plugin configs: one for each config and nginx worker.", server.Instances)
	shown.Gauge("engines", "Engines in this process, which instances with equal settings share.", engines.Len)
	shown.Gauge("servers", "Connections to weir servers, which instances with equal settings share.", servers.Len)
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		shown.Serve(ctx, func(ctx context.Context) (net.Listener, error) { return listenMetrics(ctx, address) }, logger)
	})
	err := server.Serve(ctx, listener)
	cancel()
	tasks.Wait()
	return err
}

func listenMetrics(ctx context.Context, address string) (net.Listener, error) {
	if filepath.IsAbs(address) {
		return listen(ctx, address, 0)
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

// decider turns a nil pointer into a nil interface.
func decider[D access.Decider](d D, err error) (access.Decider, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}
