package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Target is a server to load.
type Target struct {
	// Name stands for the target in reports. Empty: its address.
	Name    string
	Address Address
	// Processes are those whose processor time belongs to this target: the server, and its Redis if it has one.
	Processes []Process
	Expect    Expectation
}

// Options say how to load the targets. The zero value of a field means its default.
type Options struct {
	Workload Workload
	// Callers is the number of calls under way, at all times, in a closed loop: 1 to 100,000, 64 by default.
	Callers int
	// Connections are what the calls are spread over: 1 to 1,000, 4 by default, and never more than callers.
	Connections int
	// Rate, in calls a second, makes the loop an open one, up to 10,000,000; Callers is not used then. 0: a closed loop.
	Rate float64
	// Warmup comes before each measurement: 1 s by default; negative: none.
	Warmup time.Duration
	// Duration is how long is measured in each round, 1 ms at least: 2 s by default.
	Duration time.Duration
	// Rounds is how often each target has its turn: 1 to 1,000, 5 by default.
	Rounds int
	// Timeout is what the calls' grpc-timeout says, and when they are given up: 1 ms to 1 h, 1 s by default.
	Timeout time.Duration
	// Seed makes the sequence of keys and of gaps. The same one gives the same load.
	Seed uint64
	// Envoy, if not nil, has every request go through an Envoy of its own: one closed loop of HTTP requests on each connection,
	// 32 by default, over 10,000 keys by default. Callers and Rate are not used.
	Envoy *Envoy
	// Remote allows targets that are not on this machine.
	Remote bool
	// Progress, if set, is called a few times a second.
	Progress func(Progress)
}

// Progress is where a run is.
type Progress struct {
	Target         string
	Round, Rounds  int    // from 1; 0 while connecting
	Phase          string // "connecting", "asking for all keys", "warming up" or "measuring"
	CallsPerSecond float64
}

// ErrRemote is wrapped by the error for a target that is not on this machine.
var ErrRemote = errors.New("not on this machine")

const (
	maxCallers     = 100_000
	maxConnections = 1000
	maxRate        = 10_000_000
	maxRounds      = 1000
	maxTargets     = 16
)

func (o Options) withDefaults() Options {
	if o.Envoy != nil && o.Workload.Keys == 0 && o.Workload.Kind != Over {
		o.Workload.Keys = 10_000
	}
	o.Workload = o.Workload.withDefaults()
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	if o.Envoy != nil {
		set(&o.Connections, 32)
		o.Callers = o.Connections
	}
	set(&o.Callers, 64)
	set(&o.Connections, 4)
	set(&o.Rounds, 5)
	if o.Warmup == 0 {
		o.Warmup = time.Second
	}
	if o.Duration == 0 {
		o.Duration = 2 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.Rate == 0 && o.Callers > 0 {
		o.Connections = min(o.Connections, o.Callers)
	}
	return o
}

func (o Options) check() error {
	switch {
	case o.Callers < 1 || o.Callers > maxCallers:
		return fmt.Errorf("%d callers: write 1 to %d", o.Callers, maxCallers)
	case o.Connections < 1 || o.Connections > maxConnections:
		return fmt.Errorf("%d connections: write 1 to %d", o.Connections, maxConnections)
	case !(o.Rate >= 0 && o.Rate <= maxRate):
		return fmt.Errorf("rate %v: write calls per second up to %d, or 0 for a closed loop", o.Rate, maxRate)
	case o.Rate > 0 && o.Rate < 0.01:
		return fmt.Errorf("rate %v: write 0.01 calls per second at least", o.Rate)
	case o.Envoy != nil && o.Rate > 0:
		return errors.New("through Envoy there is a closed loop alone: leave the rate out")
	case o.Envoy != nil && (o.Envoy.Concurrency < 0 || o.Envoy.Concurrency > maxEnvoyWorkers):
		return fmt.Errorf("%d workers of Envoy: write 1 to %d", o.Envoy.Concurrency, maxEnvoyWorkers)
	case o.Duration < time.Millisecond:
		return fmt.Errorf("duration %v: write 1ms at least", o.Duration)
	case o.Rounds < 1 || o.Rounds > maxRounds:
		return fmt.Errorf("%d rounds: write 1 to %d", o.Rounds, maxRounds)
	case o.Timeout < time.Millisecond || o.Timeout > time.Hour:
		return fmt.Errorf("timeout %v: write 1ms to 1h", o.Timeout)
	default:
		return nil
	}
}

// Run loads the targets, each for Options.Rounds turns, in turns, and reports what was seen. Calls that fail are counted in
// the report; the error tells that there is none: options that make no sense, a server that is away, ctx that has ended.
func Run(ctx context.Context, targets []Target, options Options) (*Report, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}
	if len(targets) == 0 || len(targets) > maxTargets {
		return nil, fmt.Errorf("%d servers to load: name 1 to %d", len(targets), maxTargets)
	}
	made, err := newRequests(options.Workload)
	if err != nil {
		return nil, err
	}
	show := options.Progress
	if show == nil {
		show = func(Progress) {}
	}

	var loads []driver
	var named []Target
	defer func() {
		for _, l := range loads {
			l.close()
		}
	}()
	names := map[string]bool{}
	for _, target := range targets {
		if target.Name == "" {
			target.Name = target.Address.String()
		}
		if names[target.Name] {
			return nil, fmt.Errorf("two servers are called %q: name them apart", target.Name)
		}
		names[target.Name] = true
		expect, err := target.Expect.resolve(options.Workload)
		if err != nil {
			return nil, err
		}
		if err := allow(ctx, target.Address, options.Remote); err != nil {
			return nil, err
		}
		if _, err := openMeters(target.Processes); err != nil {
			return nil, err
		}
		show(Progress{Target: target.Name, Rounds: options.Rounds, Phase: "connecting"})
		l, err := newDriver(ctx, target, options, made, expect)
		if err != nil {
			return nil, err
		}
		loads, named = append(loads, l), append(named, target)
	}
	for i, l := range loads {
		show(Progress{Target: named[i].Name, Rounds: options.Rounds, Phase: "asking for all keys"})
		if err := l.prime(ctx); err != nil {
			return nil, err
		}
	}

	report := newReport(options)
	for _, target := range named {
		report.Targets = append(report.Targets, &TargetReport{Name: target.Name, Address: target.Address.String()})
	}
	for round := range options.Rounds {
		for i, l := range loads {
			seen, err := l.turn(ctx, round, func(phase string, calls uint64, over time.Duration) {
				show(Progress{named[i].Name, round + 1, options.Rounds, phase, float64(calls) / over.Seconds()})
			})
			if err != nil {
				return nil, err
			}
			report.Targets[i].Rounds = append(report.Targets[i].Rounds, seen)
		}
	}
	report.conclude()
	return report, nil
}

// driver asks one target.
type driver interface {
	// prime asks for every key once, so that what is measured is not the making of counters.
	prime(ctx context.Context) error
	turn(ctx context.Context, round int, show func(phase string, calls uint64, over time.Duration)) (*Round, error)
	close()
}

func newDriver(ctx context.Context, target Target, options Options, made *requests, expect expectation) (driver, error) {
	if options.Envoy != nil {
		return newProxied(ctx, target, options, expect)
	}
	return newLoad(ctx, target, options, made, expect)
}

func allow(ctx context.Context, address Address, remote bool) error {
	if remote {
		return nil
	}
	local, err := address.Loopback(ctx)
	switch {
	case err != nil:
		return err
	case !local:
		return fmt.Errorf("%s is %w: a load like this can take a service down", address, ErrRemote)
	default:
		return nil
	}
}
