package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/weirhq/weir/pkg/bench"
)

// setup is a way to run weir.
type setup struct {
	rules   string // as bench.Rules calls them
	inRedis bool   // counters in a Redis of its own instead of in memory
}

// listener is one of weir's two gRPC listeners, by the setting of its port.
type listener string

const (
	fast   listener = "server.fast_port" // what Envoy is to ask
	grpcGo listener = "server.grpc_port"
)

// weir is a weir that runs.
type weir struct {
	process   *process
	processes []bench.Process // it and its Redis
	ports     map[listener]int
}

// weir returns a listener of a weir with this setup, of which there is one: both its listeners cost the same processes.
func (f *field) weir(ctx context.Context, s setup, on listener) (bench.Target, error) {
	w, runs := f.weirs[s]
	if !runs {
		var err error
		if w, err = f.startWeir(ctx, s); err != nil {
			return bench.Target{}, err
		}
		if f.weirs == nil {
			f.weirs = map[setup]*weir{}
		}
		f.weirs[s] = w
	}
	return f.ready(ctx, w.process, w.ports[on], w.processes)
}

func (f *field) startWeir(ctx context.Context, s setup) (*weir, error) {
	rules, err := bench.Rules(s.rules)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(f.dir, s.rules+".yaml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		return nil, err
	}
	program, err := filepath.Abs(f.settings.weir)
	if err != nil {
		return nil, err
	}
	w := &weir{ports: map[listener]int{}}
	args := []string{"serve", "--quiet", "--rules", path, "--set", "server.host=127.0.0.1", "--set", "server.drain_delay=0s"}
	for _, name := range []listener{fast, grpcGo, "server.port"} {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		w.ports[name] = port
		args = append(args, "--set", string(name)+"="+strconv.Itoa(port))
	}
	if s.inRedis {
		address, process, err := f.redis(ctx)
		if err != nil {
			return nil, err
		}
		args = append(args, "--set", "redis.url=redis://"+address)
		w.processes = append(w.processes, process)
	}
	if w.process, err = f.launch("weir", nil, program, args...); err != nil {
		return nil, err
	}
	w.processes = append(w.processes, bench.Process{Name: "server", PID: w.process.pid()})
	return w, nil
}
