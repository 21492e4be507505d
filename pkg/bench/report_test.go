package bench

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMedian(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1e9), 1, 30).Draw(t, "values")
		before := slices.Clone(values)
		got := median(values)
		if !slices.Equal(values, before) {
			t.Fatal("the values were moved")
		}
		var below, above int
		for _, v := range values {
			if v < got {
				below++
			}
			if v > got {
				above++
			}
		}
		if below > len(values)/2 || above > len(values)/2 {
			t.Fatalf("%v is no median of %v: %d below, %d above", got, values, below, above)
		}
	})
	if median(nil) != 0 || median([]float64{1, 4}) != 2.5 {
		t.Error("the median of none is not 0, or that of 1 and 4 not 2.5")
	}
}

// sample is a round with simple figures: processor time in milliseconds, latency in microseconds.
func sample(calls uint64, milliseconds, micros int) *Round {
	cpu, latency := time.Duration(milliseconds)*time.Millisecond, time.Duration(micros)*time.Microsecond
	seen := &tally{allowed: calls}
	for range calls {
		seen.latency.Record(latency)
		seen.lag.Record(latency / 2)
	}
	return newRound(seen, 2*time.Second, map[string]time.Duration{
		"server": cpu, "redis": cpu / 2, generatorName: cpu / 4,
	})
}

func sampleReport() *Report {
	report := newReport(Options{Rounds: 3, Duration: 2 * time.Second, Warmup: time.Second}.withDefaults())
	fast := &TargetReport{Name: "fast", Address: "127.0.0.1:1"}
	slow := &TargetReport{Name: "slow", Address: "127.0.0.1:2"}
	for i := range 3 {
		n := i + 1
		fast.Rounds = append(fast.Rounds, sample(1000, 10*n, 100*n))
		slow.Rounds = append(slow.Rounds, sample(100, 2*n, 300*n))
	}
	slow.Rounds[1].Faults = map[Fault]uint64{FaultCode: 2}
	slow.Rounds[1].Examples = map[Fault]string{FaultCode: "overall code UNKNOWN instead of OK"}
	slow.Rounds[2].Unsent = 5 // of 300
	fast.Rounds[2].Unsent = 5 // of 3000
	report.Targets = []*TargetReport{fast, slow}
	report.conclude()
	return report
}

func near(a, b float64) bool { return math.Abs(a-b) <= 0.01*math.Abs(b) }

func TestReport(t *testing.T) {
	report := sampleReport()
	fast, slow := report.Targets[0].Median, report.Targets[1].Median
	if fast.Calls != 3000 || fast.CallsPerSecond != 500 || !near(fast.CPU["server"], 20) || !near(fast.CPUTotal, 30) || !near(fast.Generator, 5) {
		t.Errorf("fast: %+v", fast)
	}
	if !near(fast.Latency.P50, 200) || !near(fast.Lag.P99, 100) {
		t.Errorf("fast: latency %+v, lag %+v", fast.Latency, fast.Lag)
	}
	if report.Faults() != 2 || slow.Faults[FaultCode] != 2 || slow.Unsent != 5 {
		t.Errorf("faults %v, unsent %d", slow.Faults, slow.Unsent)
	}
	ratios := report.Against("slow")
	if !near(ratios.CPU.Median, 0.5) || !near(ratios.P99.Least, 1.0/3) || !near(ratios.CallsPerSecond.Most, 10) || len(ratios.CPU.Rounds) != 3 {
		t.Errorf("ratios %+v %+v %+v", ratios.CPU, ratios.P99, ratios.CallsPerSecond)
	}
}

// A target without calls, or without processes, has no ratio instead of an infinite one.
func TestRatioOfNothing(t *testing.T) {
	idle := &TargetReport{Rounds: []*Round{newRound(new(tally), time.Second, map[string]time.Duration{"server": time.Second})}}
	busy := &TargetReport{Rounds: []*Round{sample(10, 1000, 1000)}}
	if ratios := Compare(idle, busy); ratios.CPU != nil || ratios.CallsPerSecond != nil || ratios.P99 != nil {
		t.Errorf("ratios %+v", ratios)
	}
	if idle.Rounds[0].CPUTotal != 0 {
		t.Errorf("no call cost %v", idle.Rounds[0].CPUTotal)
	}
	if _, err := json.Marshal(idle); err != nil { // of an infinity, for example
		t.Error(err)
	}
}

// Scripts read these names.
func TestReportAsJSON(t *testing.T) {
	text, err := json.Marshal(sampleReport())
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"load.workload", "load.keys", "load.callers", "load.connections", "load.warmup_seconds", "load.duration_seconds",
		"load.rounds", "load.timeout_seconds", "load.seed",
		"targets.0.name", "targets.0.address", "targets.0.rounds.2.calls", "targets.0.median.calls_per_second",
		"targets.0.median.allowed", "targets.0.median.denied", "targets.0.median.seconds",
		"targets.0.median.latency_us.p50", "targets.0.median.latency_us.p99", "targets.0.median.latency_us.p99_9",
		"targets.0.median.latency_us.max", "targets.0.median.send_lag_us.p99", "targets.0.median.unsent",
		"targets.0.median.cpu_us_per_call.redis", "targets.0.median.cpu_us_per_call_total",
		"targets.0.median.generator_cpu_us_per_call", "targets.1.median.faults.code", "targets.1.median.fault_examples.code",
		"ratios.0.of", "ratios.0.to", "ratios.0.cpu_per_call.median", "ratios.0.cpu_per_call.rounds.1",
		"ratios.0.calls_per_second.least", "ratios.0.p50.most", "ratios.0.p99.median", "ratios.0.p99_9.median",
	} {
		var at any = tree
		for name := range strings.SplitSeq(path, ".") {
			switch node := at.(type) {
			case map[string]any:
				at = node[name]
			case []any:
				if i := int(name[0] - '0'); i < len(node) {
					at = node[i]
				} else {
					at = nil
				}
			default:
				at = nil
			}
		}
		if at == nil {
			t.Errorf("%s is missing in %s", path, text)
		}
	}
}

func TestReportAsText(t *testing.T) {
	var out strings.Builder
	if err := sampleReport().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"uniform, 100000 keys; 64 callers on 4 connections; 3 rounds of 2s after 1s; medians\n",
		"30.0 us", "5.0 us",
		"fast: CPU/call is redis 10.0 us + server 20.0 us\n",
		"fast / slow, paired by round:\n  CPU/call  0.50  (0.50 to 0.50)\n",
		"slow: 5 calls were due and never sent",
		"slow: 2 calls failed (code), the first with: overall code UNKNOWN instead of OK\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "fast: 5 calls were due") {
		t.Errorf("a few calls that were due at the end are called too many:\n%s", out.String())
	}
	open := Load{Workload: Hot, Keys: 1, Rate: 2500, Connections: 1, Rounds: 1, Duration: 0.5}
	if got, want := open.String(), "hot; 2500 calls a second (Poisson) on 1 connection; 1 round of 0.5s after 0s; medians"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A few calls that fail before the first round are borne, more are not.
func TestFaultsBeforeTheFirstRound(t *testing.T) {
	var f faults
	target := Target{Address: Address{"tcp", "127.0.0.1:1"}}
	for n := 1; n <= 6; n++ {
		f.add(FaultCode, "no")
		if err := f.err(target, 50); (err != nil) != (n > 5) {
			t.Errorf("%d of 50: %v", n, err)
		}
	}
	if err := f.err(target, 1); err == nil || !strings.Contains(err.Error(), "6 calls failed before the first round, one of them with: no") {
		t.Errorf("error %v", err)
	}
	if err := new(faults).err(target, 1); err != nil {
		t.Errorf("none failed: %v", err)
	}
}
