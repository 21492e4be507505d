package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/pkg/bench"
)

// failures are the calls of one contestant in one scene that failed, in the warm-ups too, so that their share is rather told
// too great than too small.
type failures struct {
	failed uint64
	calls  uint64 // those that failed and those that were measured
	kinds  string // "2 timeout, 1 reset"
}

func failuresOf(target *bench.TargetReport) failures {
	m := target.Median
	var kinds []string
	for _, fault := range slices.Sorted(maps.Keys(m.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", m.Faults[fault], fault))
	}
	return failures{failed: m.Failed(), calls: m.Calls + m.Failed(), kinds: strings.Join(kinds, ", ")}
}

func (f failures) share() float64 {
	if f.failed == 0 {
		return 0
	}
	return float64(f.failed) / float64(f.calls)
}

func (f failures) String() string {
	return fmt.Sprintf("%d of %d calls failed (%s)", f.failed, f.calls, f.kinds)
}

// bear returns an error if more than the share bound of the calls of any contestant failed. Each is judged by its own calls:
// a server that answers nothing has few, which would be lost among those of its neighbours.
func bear(report *bench.Report, bound float64) error {
	for _, target := range report.Targets {
		if f := failuresOf(target); f.share() > bound {
			return fmt.Errorf("of %s %v, a share of %.2g: figures stand up to %v (-faults)", target.Name, f, f.share(), bound)
		}
	}
	return nil
}

// noteFailures says under a table which calls are not in its figures.
func noteFailures(out *strings.Builder, report *bench.Report) {
	var notes []string
	for _, target := range report.Targets {
		if f := failuresOf(target); f.failed > 0 {
			notes = append(notes, fmt.Sprintf("of %s %v", target.Name, f))
		}
	}
	if len(notes) > 0 {
		fmt.Fprintf(out, "\nNot in the figures: %s.\n", strings.Join(notes, "; "))
	}
}
