// Command bench measures weir beside an empty grpc-go server and envoyproxy/ratelimit, all on this machine, in turns, and
// writes the tables of a document anew: what stands between "<!-- figures: written by make bench -->" and "<!-- end -->".
//
// It starts every server that it measures, on free ports of 127.0.0.1, and ends them all, also when it is interrupted.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/weirhq/weir/pkg/bench"
)

type settings struct {
	weir, redis, peer, envoy string // programs
	page, readme, json       string // files to write; empty: none
	rounds                   int
	warmup, duration         time.Duration
	keys                     int
	faults                   float64 // share of a contestant's calls, 0 to 1
	only                     string
}

func main() {
	var s settings
	flag.StringVar(&s.weir, "weir", "bin/weir", "the weir `PROGRAM`")
	flag.StringVar(&s.redis, "redis", "redis-server", "the Redis `PROGRAM`")
	flag.StringVar(&s.peer, "peer", "build/peers/ratelimit", "the `PROGRAM` of envoyproxy/ratelimit; it is left out if it is not there")
	flag.StringVar(&s.envoy, "envoy", "build/venv/bin/envoy", "the Envoy `PROGRAM`")
	flag.StringVar(&s.page, "page", "docs/benchmarks.md", "the `FILE` whose tables are written; empty: none")
	flag.StringVar(&s.readme, "readme", "README.md", "the `FILE` whose summary is written; empty: none")
	flag.StringVar(&s.json, "json", "build/benchmarks.json", "the `FILE` that all rounds are written to; empty: none")
	flag.IntVar(&s.rounds, "rounds", 5, "turns of each server in each table")
	flag.DurationVar(&s.warmup, "warmup", 500*time.Millisecond, "before each measurement")
	flag.DurationVar(&s.duration, "duration", 1500*time.Millisecond, "of each measurement at saturation; light loads take twice that")
	flag.IntVar(&s.keys, "keys", 100_000, "different keys of the uniform workload")
	flag.Float64Var(&s.faults, "faults", 0.001, "the `SHARE` of a server's calls in a table up to which they may fail; above it there are no figures")
	flag.StringVar(&s.only, "only", "", "measure the `SCENE` of this name alone, and print it instead of writing files")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, os.Stdout, os.Stderr); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted: nothing has been written")
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // run has ended everything
	}
}

func run(ctx context.Context, s settings, stdout, stderr *os.File) error {
	if s.faults < 0 || s.faults > 1 || math.IsNaN(s.faults) {
		return fmt.Errorf("-faults %v: write a share from 0 (none) to 1 (any)", s.faults)
	}
	dir, err := os.MkdirTemp("", "weir-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	field := &field{dir: dir, settings: s}
	defer field.close()
	scenes, err := plan(s)
	if err != nil {
		return err
	}

	about, err := describe(ctx, s)
	if err != nil {
		return err
	}
	results := results{About: about}
	for i, scene := range scenes {
		fmt.Fprintf(stderr, "==> %d of %d: %s\n", i+1, len(scenes), scene.title)
		report, err := measure(ctx, field, scene, s.faults, stderr)
		if err != nil {
			return err
		}
		results.Scenes = append(results.Scenes, sceneResult{Name: scene.name, Title: scene.title, Report: report})
		if err := report.WriteText(stdout); err != nil {
			return err
		}
	}
	if s.only != "" {
		return nil
	}
	if s.json != "" {
		if err := writeJSON(s.json, results); err != nil {
			return err
		}
	}
	for path, figures := range map[string]string{s.page: tables(results), s.readme: digest(results)} {
		if path == "" {
			continue
		}
		if err := writePage(path, figures); err != nil {
			return err
		}
	}
	return nil
}

// measure runs one scene. More wrong or missing replies than the share faults make its figures worthless.
func measure(ctx context.Context, field *field, scene scene, faults float64, stderr *os.File) (*bench.Report, error) {
	var targets []bench.Target
	for _, contestant := range scene.contestants {
		target, err := field.target(ctx, contestant)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", contestant, err)
		}
		targets = append(targets, target)
	}
	options := scene.options
	if isatty.IsTerminal(stderr.Fd()) {
		const clearLine = "\r\x1b[K"
		options.Progress = func(p bench.Progress) {
			fmt.Fprintf(stderr, "%s%s: round %d of %d, %s, %.0f calls/s", clearLine, p.Target, p.Round, p.Rounds, p.Phase, p.CallsPerSecond)
		}
		defer fmt.Fprint(stderr, clearLine)
	}
	report, err := bench.Run(ctx, targets, options)
	if err != nil {
		return nil, err
	}
	if err := bear(report, faults); err != nil {
		_ = report.WriteText(stderr)
		return nil, fmt.Errorf("%s: %w", scene.title, err)
	}
	return report, nil
}

func writeJSON(path string, what any) error {
	text, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // everyone may read figures
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // the same
}
