package bench

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Report is what a run has found. Its JSON form is stable: fields are added, never renamed.
type Report struct {
	Load    Load            `json:"load"`
	Targets []*TargetReport `json:"targets"`
	// Ratios compare the first target with each of the others.
	Ratios []*Ratios `json:"ratios,omitempty"`
}

// Load is what was asked for.
type Load struct {
	Workload    Kind    `json:"workload"`
	Keys        int     `json:"keys"`
	Callers     int     `json:"callers,omitempty"` // of a closed loop
	Rate        float64 `json:"rate,omitempty"`    // of an open loop, in calls per second
	Connections int     `json:"connections"`
	Envoy       int     `json:"envoy_workers,omitempty"` // of the Envoy that requests go through; 0: none
	Warmup      float64 `json:"warmup_seconds"`
	Duration    float64 `json:"duration_seconds"`
	Rounds      int     `json:"rounds"`
	Timeout     float64 `json:"timeout_seconds"`
	Seed        uint64  `json:"seed"`
}

// TargetReport is what was found of one target.
type TargetReport struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	Rounds  []*Round `json:"rounds"`
	// Median holds each figure's median over the rounds, counts their sums.
	Median *Round `json:"median"`
}

// Round is one turn of one target. Times are in microseconds.
type Round struct {
	Seconds        float64 `json:"seconds"`
	Calls          uint64  `json:"calls"` // answered rightly
	Allowed        uint64  `json:"allowed"`
	Denied         uint64  `json:"denied"`
	CallsPerSecond float64 `json:"calls_per_second"`
	Latency        Times   `json:"latency_us"`
	// Lag is how late an open loop's calls were sent; it is in the latencies. A closed loop has none.
	Lag *Times `json:"send_lag_us,omitempty"`
	// Unsent are an open loop's calls that were due and not sent by the end, because too many were under way. They are in the
	// latencies with what they had waited.
	Unsent uint64 `json:"unsent"`
	// CPU is the processor time per call of the target's processes by their names, CPUTotal their sum.
	CPU      map[string]float64 `json:"cpu_us_per_call,omitempty"`
	CPUTotal float64            `json:"cpu_us_per_call_total,omitempty"`
	// Envoy is the processor time per call of the Envoy that requests go through; it is not in CPUTotal.
	Envoy float64 `json:"envoy_cpu_us_per_call,omitempty"`
	// Generator is the processor time per call of the load generator itself.
	Generator float64 `json:"generator_cpu_us_per_call"`
	// Faults are the calls that failed, in the warm-up too, by how; they are not in Calls.
	Faults map[Fault]uint64 `json:"faults,omitempty"`
	// Examples are the first of each.
	Examples map[Fault]string `json:"fault_examples,omitempty"`
}

// Times are quantiles.
type Times struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// Ratios compare two targets, round by round.
type Ratios struct {
	Of string `json:"of"`
	To string `json:"to"`
	// CPU is of CPUTotal; nil when either has no processes.
	CPU            *Ratio `json:"cpu_per_call,omitempty"`
	CallsPerSecond *Ratio `json:"calls_per_second,omitempty"`
	P50            *Ratio `json:"p50,omitempty"`
	P99            *Ratio `json:"p99,omitempty"`
	P999           *Ratio `json:"p99_9,omitempty"`
}

// Ratio is what rounds that stand side by side say of two targets: the first one's figure by the other's.
type Ratio struct {
	Median float64   `json:"median"`
	Least  float64   `json:"least"`
	Most   float64   `json:"most"`
	Rounds []float64 `json:"rounds"`
}

func newReport(options Options) *Report {
	load := Load{
		Workload: options.Workload.Kind, Keys: options.Workload.Keys, Rate: options.Rate,
		Connections: options.Connections, Warmup: max(0, options.Warmup).Seconds(), Duration: options.Duration.Seconds(),
		Rounds: options.Rounds, Timeout: options.Timeout.Seconds(), Seed: options.Seed,
	}
	if options.Envoy != nil {
		load.Envoy = max(1, options.Envoy.Concurrency)
	}
	if options.Rate == 0 {
		load.Callers = options.Callers
	}
	return &Report{Load: load}
}

func newRound(seen *tally, lasted time.Duration, used map[string]time.Duration) *Round {
	calls := seen.calls()
	r := &Round{
		Seconds: lasted.Seconds(), Calls: calls, Allowed: seen.allowed, Denied: seen.denied, Unsent: seen.unsent,
		CallsPerSecond: float64(calls) / lasted.Seconds(),
		Latency:        newTimes(&seen.latency),
		Faults:         seen.faults.counts, Examples: seen.faults.examples,
	}
	if seen.lag.Count() > 0 {
		lag := newTimes(&seen.lag)
		r.Lag = &lag
	}
	for name, time := range used {
		var each float64
		if calls > 0 {
			each = microseconds(time) / float64(calls)
		}
		if name == generatorName {
			r.Generator = each
			continue
		}
		if r.CPU == nil {
			r.CPU = map[string]float64{}
		}
		r.CPU[name] = each
		r.CPUTotal += each
	}
	return r
}

func newTimes(h *Histogram) Times {
	return Times{
		P50: microseconds(h.Quantile(0.5)), P99: microseconds(h.Quantile(0.99)),
		P999: microseconds(h.Quantile(0.999)), Max: microseconds(h.Max()),
	}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Faults is the number of all calls that failed, of all targets.
func (r *Report) Faults() uint64 {
	var n uint64
	for _, target := range r.Targets {
		n += target.Median.Failed()
	}
	return n
}

// Failed is the number of calls that failed, see Faults.
func (r *Round) Failed() uint64 { return total(r.Faults) }

func total(counts map[Fault]uint64) uint64 {
	var n uint64
	for _, count := range counts {
		n += count
	}
	return n
}

// Against returns the ratios to another target, nil if it has none.
func (r *Report) Against(name string) *Ratios {
	for _, ratios := range r.Ratios {
		if ratios.To == name {
			return ratios
		}
	}
	return nil
}

// conclude computes what follows from the rounds.
func (r *Report) conclude() {
	for _, target := range r.Targets {
		target.Median = medianRound(target.Rounds)
	}
	for _, other := range r.Targets[1:] {
		r.Ratios = append(r.Ratios, Compare(r.Targets[0], other))
	}
}

// Compare pairs the rounds of two targets of one report.
func Compare(of, to *TargetReport) *Ratios {
	ratio := func(figure func(*Round) float64) *Ratio { return newRatio(of.Rounds, to.Rounds, figure) }
	return &Ratios{
		Of: of.Name, To: to.Name,
		CPU:            ratio(func(r *Round) float64 { return r.CPUTotal }),
		CallsPerSecond: ratio(func(r *Round) float64 { return r.CallsPerSecond }),
		P50:            ratio(func(r *Round) float64 { return r.Latency.P50 }),
		P99:            ratio(func(r *Round) float64 { return r.Latency.P99 }),
		P999:           ratio(func(r *Round) float64 { return r.Latency.P999 }),
	}
}

// newRatio is nil if there is nothing to divide in any round.
func newRatio(of, to []*Round, figure func(*Round) float64) *Ratio {
	var values []float64
	for i := range min(len(of), len(to)) {
		if a, b := figure(of[i]), figure(to[i]); a > 0 && b > 0 {
			values = append(values, a/b)
		}
	}
	if len(values) == 0 {
		return nil
	}
	return &Ratio{Median: median(values), Least: slices.Min(values), Most: slices.Max(values), Rounds: values}
}

// medianRound sums the counts and takes the median of every figure by itself.
func medianRound(rounds []*Round) *Round {
	of := func(figure func(*Round) float64) float64 {
		values := make([]float64, len(rounds))
		for i, round := range rounds {
			values[i] = figure(round)
		}
		return median(values)
	}
	times := func(part func(*Round) *Times) Times {
		return Times{
			P50:  of(func(r *Round) float64 { return part(r).P50 }),
			P99:  of(func(r *Round) float64 { return part(r).P99 }),
			P999: of(func(r *Round) float64 { return part(r).P999 }),
			Max:  of(func(r *Round) float64 { return part(r).Max }),
		}
	}
	sum := &Round{
		Seconds:        of(func(r *Round) float64 { return r.Seconds }),
		CallsPerSecond: of(func(r *Round) float64 { return r.CallsPerSecond }),
		CPUTotal:       of(func(r *Round) float64 { return r.CPUTotal }),
		Generator:      of(func(r *Round) float64 { return r.Generator }),
		Envoy:          of(func(r *Round) float64 { return r.Envoy }),
		Latency:        times(func(r *Round) *Times { return &r.Latency }),
	}
	var lag, noLag Times
	var all faults
	for _, round := range rounds {
		sum.Calls += round.Calls
		sum.Allowed += round.Allowed
		sum.Denied += round.Denied
		sum.Unsent += round.Unsent
		all.merge(&faults{round.Faults, round.Examples})
		if round.Lag != nil {
			sum.Lag = &lag
		}
		for name := range round.CPU {
			if sum.CPU == nil {
				sum.CPU = map[string]float64{}
			}
			sum.CPU[name] = of(func(r *Round) float64 { return r.CPU[name] })
		}
	}
	sum.Faults, sum.Examples = maps.Clone(all.counts), maps.Clone(all.examples)
	if sum.Lag != nil {
		lag = times(func(r *Round) *Times {
			if r.Lag == nil {
				return &noLag
			}
			return r.Lag
		})
	}
	return sum
}

// median is the middle value, or the mean of the two in the middle; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return math.FMA(sorted[middle]-sorted[middle-1], 0.5, sorted[middle-1])
}
