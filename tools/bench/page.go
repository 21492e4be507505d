package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/weirhq/weir/pkg/bench"
)

// results are everything that one run of this command has found.
type results struct {
	About  about         `json:"about"`
	Scenes []sceneResult `json:"scenes"`
}

type sceneResult struct {
	Name   string        `json:"name"`
	Title  string        `json:"title"`
	Report *bench.Report `json:"report"`
}

const (
	begin = "<!-- figures: written by make bench -->\n"
	end   = "<!-- end -->"
)

// writePage replaces what stands between the marks.
func writePage(path, figures string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page, err := replace(text, figures)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, page, 0o644) //nolint:gosec // a document that everyone may read
}

func replace(page []byte, figures string) ([]byte, error) {
	before, rest, found := bytes.Cut(page, []byte(begin))
	_, after, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		return nil, fmt.Errorf("there is no place for the figures: write the marks %q and %q", strings.TrimSpace(begin), end)
	}
	return fmt.Appendf(nil, "%s%s\n%s\n%s%s", before, begin, figures, end, after), nil
}

// digest is the generated part of the README.
func digest(r results) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Measured %s on %s.\n\n", r.About.Date, r.About.Machine)
	summary(&out, r)
	return out.String()
}

// tables is the generated part of the page.
func tables(r results) string {
	var out strings.Builder
	a := r.About
	fmt.Fprintf(&out, "Measured %s on %s (load average before: %s). weir %s, grpc-go %s, Redis %s", a.Date, a.Machine, a.Load, a.Weir, a.Grpc, a.Redis)
	if a.Peer != "" {
		fmt.Fprintf(&out, ", envoyproxy/ratelimit %s.\n", a.Peer)
	} else {
		fmt.Fprintf(&out, "; envoyproxy/ratelimit was not installed (`make bench-peers`).\n")
	}
	out.WriteString("\n### CPU per decision, server and Redis, by load\n\n")
	summary(&out, r)
	for _, scene := range r.Scenes {
		fmt.Fprintf(&out, "\n### %s\n\n%s.\n\n", scene.Title, scene.Report.Load)
		detail(&out, scene.Report)
		noteFailures(&out, scene.Report)
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// summary puts the uniform workload at saturation, under light load and behind Envoy side by side.
func summary(out *strings.Builder, r results) {
	columns := []struct{ scene, title string }{
		{saturatedUniform, "saturated"},
		{light10000, "10,000/s"},
		{light2000, "2,000/s"},
		{oneCaller, "one caller"},
		{viaEnvoy, "behind Envoy"},
	}
	rows := []contestant{echo, weirMemory, weirRedis, grpcMemory, grpcRedis, peer}
	out.WriteString("| uniform, us (x echo) |")
	for _, column := range columns {
		fmt.Fprintf(out, " %s |", column.title)
	}
	fmt.Fprintf(out, "\n| --- |%s\n", strings.Repeat(" ---: |", len(columns)))
	for _, row := range rows {
		var line strings.Builder
		known := false
		for _, column := range columns {
			report := r.scene(column.scene)
			target := find(report, row)
			if target == nil {
				line.WriteString(" - |")
				continue
			}
			known = true
			fmt.Fprintf(&line, " %.1f (%s) |", target.Median.CPUTotal, share(target, find(report, echo)))
		}
		if known {
			fmt.Fprintf(out, "| %s |%s\n", row, line.String())
		}
	}
}

func (r results) scene(name string) *bench.Report {
	for _, scene := range r.Scenes {
		if scene.Name == name {
			return scene.Report
		}
	}
	return nil
}

func find(report *bench.Report, c contestant) *bench.TargetReport {
	if report == nil {
		return nil
	}
	for _, target := range report.Targets {
		if target.Name == string(c) {
			return target
		}
	}
	return nil
}

// share is the ratio of processor times, paired by round.
func share(of, to *bench.TargetReport) string {
	if of == nil || to == nil {
		return "-"
	}
	return number(bench.Compare(of, to).CPU)
}

func number(ratio *bench.Ratio) string {
	if ratio == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio.Median)
}

// withSpread shows where the single rounds lay.
func withSpread(ratio *bench.Ratio) string {
	if ratio == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", ratio.Median, ratio.Least, ratio.Most)
}

func detail(out *strings.Builder, report *bench.Report) {
	out.WriteString("| | CPU us | of it Redis | x echo | x ratelimit | decisions/s | p50 | p99 | p99.9 | p99 x echo |\n")
	out.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	floor, other := find(report, echo), find(report, peer)
	for _, target := range report.Targets {
		m := target.Median
		redis := "-"
		if us, has := m.CPU["redis"]; has {
			redis = fmt.Sprintf("%.1f", us)
		}
		toFloor, toPeer := &bench.Ratios{}, &bench.Ratios{}
		if floor != nil && target != floor {
			toFloor = bench.Compare(target, floor)
		}
		if other != nil && target != other && target != floor {
			toPeer = bench.Compare(target, other)
		}
		fmt.Fprintf(out, "| %s | %.1f | %s | %s | %s | %.0f | %s | %s | %s | %s |\n",
			target.Name, m.CPUTotal, redis, withSpread(toFloor.CPU), withSpread(toPeer.CPU), m.CallsPerSecond,
			duration(m.Latency.P50), duration(m.Latency.P99), duration(m.Latency.P999), number(toFloor.P99))
	}
}

// duration shows microseconds in the unit that suits them.
func duration(us float64) string {
	if us < 1000 {
		return fmt.Sprintf("%.0f us", us)
	}
	return fmt.Sprintf("%.1f ms", us/1000)
}
