package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteText prints a report for people.
func (r *Report) WriteText(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n", r.Load)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	open := r.Load.Rate > 0
	row := func(cells ...string) { fmt.Fprintln(table, strings.Join(cells, "\t")+"\t") }
	header := []string{"", "calls/s", "p50", "p99", "p99.9", "CPU/call", "generator"}
	if open {
		header = append(header, "lag p50", "lag p99")
	}
	if r.Load.Envoy > 0 {
		header = append(header, "Envoy")
	}
	row(header...)
	for _, target := range r.Targets {
		m := target.Median
		cells := []string{
			target.Name, fmt.Sprintf("%.0f", m.CallsPerSecond),
			micros(m.Latency.P50), micros(m.Latency.P99), micros(m.Latency.P999), cpu(m), fmt.Sprintf("%.1f us", m.Generator),
		}
		if open && m.Lag != nil {
			cells = append(cells, micros(m.Lag.P50), micros(m.Lag.P99))
		}
		if r.Load.Envoy > 0 {
			cells = append(cells, fmt.Sprintf("%.1f us", m.Envoy))
		}
		row(cells...)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, target := range r.Targets {
		writeParts(out, target)
	}
	for _, ratios := range r.Ratios {
		writeRatios(out, ratios)
	}
	for _, target := range r.Targets {
		writeFaults(out, target)
	}
	return nil
}

// String says what was asked for: "uniform, 100000 keys; 64 callers on 4 connections; 5 rounds of 2s".
func (l Load) String() string {
	text := string(l.Workload)
	if l.Keys > 1 {
		text += fmt.Sprintf(", %d keys", l.Keys)
	}
	if l.Envoy > 0 {
		text += fmt.Sprintf("; through Envoy with %s", count(l.Envoy, "worker"))
	} else if l.Rate > 0 {
		text += fmt.Sprintf("; %v calls a second (Poisson)", l.Rate)
	} else {
		text += fmt.Sprintf("; %s", count(l.Callers, "caller"))
	}
	return text + fmt.Sprintf(" on %s; %s of %vs after %vs; medians",
		count(l.Connections, "connection"), count(l.Rounds, "round"), l.Duration, l.Warmup)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// writeParts says which process the processor time belongs to, where there are several.
func writeParts(out io.Writer, target *TargetReport) {
	if len(target.Median.CPU) < 2 {
		return
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(target.Median.CPU)) {
		parts = append(parts, fmt.Sprintf("%s %.1f us", name, target.Median.CPU[name]))
	}
	fmt.Fprintf(out, "\n%s: CPU/call is %s\n", target.Name, strings.Join(parts, " + "))
}

func writeRatios(out io.Writer, ratios *Ratios) {
	fmt.Fprintf(out, "\n%s / %s, paired by round:", ratios.Of, ratios.To)
	for _, part := range []struct {
		name  string
		ratio *Ratio
	}{
		{"CPU/call", ratios.CPU},
		{"calls/s", ratios.CallsPerSecond},
		{"p50", ratios.P50},
		{"p99", ratios.P99},
		{"p99.9", ratios.P999},
	} {
		if part.ratio != nil {
			fmt.Fprintf(out, "\n  %-8s  %.2f  (%.2f to %.2f)", part.name, part.ratio.Median, part.ratio.Least, part.ratio.Most)
		}
	}
	fmt.Fprintln(out)
}

// muchUnsent of an open loop's calls, one in so many, mean that the server did not keep up. A few fewer were only due in the
// instant at which the round ended.
const muchUnsent = 200

func writeFaults(out io.Writer, target *TargetReport) {
	m := target.Median
	if m.Unsent*muchUnsent > m.Calls {
		fmt.Fprintf(out, "\n%s: %d calls were due and never sent: it cannot keep up with this rate, and its latencies are lower bounds\n",
			target.Name, m.Unsent)
	}
	for _, fault := range slices.Sorted(maps.Keys(m.Faults)) {
		fmt.Fprintf(out, "\n%s: %d calls failed (%s), the first with: %s\n", target.Name, m.Faults[fault], fault, m.Examples[fault])
	}
}

func cpu(r *Round) string {
	if len(r.CPU) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f us", r.CPUTotal)
}

// micros prints a time in the unit that suits it.
func micros(us float64) string {
	if us < 1000 {
		return fmt.Sprintf("%.0f us", us)
	}
	return fmt.Sprintf("%.1f ms", us/1000)
}
