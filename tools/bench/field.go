package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirhq/weir/pkg/bench"
)

// field holds the servers that run, each with a Redis of its own if it needs one, so that what one leaves behind costs no
// other anything. They are started when a scene first asks for them. Two contestants can be listeners of one server.
type field struct {
	dir      string
	settings settings
	targets  map[contestant]bench.Target
	weirs    map[setup]*weir
	ends     []func()
}

// close ends all servers, the last one first.
func (f *field) close() {
	for _, end := range slices.Backward(f.ends) {
		end()
	}
}

// target returns a contestant that runs.
func (f *field) target(ctx context.Context, c contestant) (bench.Target, error) {
	if target, runs := f.targets[c]; runs {
		return target, nil
	}
	var target bench.Target
	var err error
	switch c {
	case echo:
		target, err = f.echo(ctx)
	case weirMemory:
		target, err = f.weir(ctx, setup{rules: "weir"}, fast)
	case weirRedis:
		target, err = f.weir(ctx, setup{rules: "weir", inRedis: true}, fast)
	case weirLease:
		target, err = f.weir(ctx, setup{rules: "leases", inRedis: true}, fast)
	case grpcMemory:
		target, err = f.weir(ctx, setup{rules: "weir"}, grpcGo)
	case grpcRedis:
		target, err = f.weir(ctx, setup{rules: "weir", inRedis: true}, grpcGo)
	case grpcLease:
		target, err = f.weir(ctx, setup{rules: "leases", inRedis: true}, grpcGo)
	case weirInPlace:
		target, err = f.inPlace(ctx)
	case peer:
		target, err = f.peer(ctx, f.settings.peer)
	case peerCache:
		target, err = f.peer(ctx, f.settings.peer, "LOCAL_CACHE_SIZE_IN_BYTES=16777216")
	case peerCollector:
		target, err = f.peer(ctx, f.settings.peer, "GOGC=400")
	default:
		err = fmt.Errorf("nobody knows how to start it")
	}
	if err != nil {
		return bench.Target{}, err
	}
	target.Name = string(c)
	if f.targets == nil {
		f.targets = map[contestant]bench.Target{}
	}
	f.targets[c] = target
	return target, nil
}

func (f *field) echo(ctx context.Context) (bench.Target, error) {
	floor, err := bench.StartFloor(ctx, false, f.settings.weir, "bench-floor")
	if err != nil {
		return bench.Target{}, err
	}
	f.ends = append(f.ends, floor.Close)
	return floor.Target, nil
}

// launch starts a server that is ended with the field.
func (f *field) launch(name string, environ []string, program string, args ...string) (*process, error) {
	p, err := start(name, f.dir, environ, program, args...)
	if err != nil {
		return nil, err
	}
	f.ends = append(f.ends, p.stop)
	return p, nil
}

// redis starts a Redis without persistence and returns its host:port.
func (f *field) redis(ctx context.Context) (string, bench.Process, error) {
	port, err := freePort(ctx)
	if err != nil {
		return "", bench.Process{}, err
	}
	p, err := f.launch("redis-server", nil, f.settings.redis,
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no")
	if err != nil {
		return "", bench.Process{}, err
	}
	address := loopback(port)
	err = p.await(ctx, func() bool { return pings(ctx, address) })
	return address, bench.Process{Name: "redis", PID: p.pid()}, err
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func pings(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(time.Second))
	if _, err := connection.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(connection).ReadString('\n')
	return err == nil && line == "+PONG\r\n"
}

// inPlace starts weir as envoyproxy/ratelimit is started, under its name.
func (f *field) inPlace(ctx context.Context) (bench.Target, error) {
	program, err := filepath.Abs(f.settings.weir)
	if err != nil {
		return bench.Target{}, err
	}
	link := filepath.Join(f.dir, "ratelimit")
	if err := os.Symlink(program, link); err != nil {
		return bench.Target{}, err
	}
	return f.peer(ctx, link)
}

// peer starts envoyproxy/ratelimit, or what takes its place, with its default settings but for its statistics, which are off: what it would send them
// to is not there.
func (f *field) peer(ctx context.Context, path string, environ ...string) (bench.Target, error) {
	rules, err := bench.Rules("envoyproxy")
	if err != nil {
		return bench.Target{}, err
	}
	folder := filepath.Join(f.dir, "envoyproxy", "ratelimit", "config")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return bench.Target{}, err
	}
	if err := os.WriteFile(filepath.Join(folder, "bench.yaml"), []byte(rules), 0o600); err != nil {
		return bench.Target{}, err
	}
	program, err := filepath.Abs(path)
	if err != nil {
		return bench.Target{}, err
	}
	redis, process, err := f.redis(ctx)
	if err != nil {
		return bench.Target{}, err
	}
	var ports [3]int
	for i := range ports {
		if ports[i], err = freePort(ctx); err != nil {
			return bench.Target{}, err
		}
	}
	environ = append(environ,
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis,
		"RUNTIME_ROOT="+filepath.Join(f.dir, "envoyproxy"), "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT="+strconv.Itoa(ports[0]), "PORT="+strconv.Itoa(ports[1]), "DEBUG_PORT="+strconv.Itoa(ports[2]),
	)
	p, err := f.launch("envoyproxy/ratelimit", environ, program)
	if err != nil {
		return bench.Target{}, err
	}
	return f.ready(ctx, p, ports[0], []bench.Process{process, {Name: "server", PID: p.pid()}})
}

// ready waits until a server answers by the rules.
func (f *field) ready(ctx context.Context, p *process, port int, processes []bench.Process) (bench.Target, error) {
	address, err := bench.ParseAddress(loopback(port))
	if err != nil {
		return bench.Target{}, err
	}
	connection, err := grpc.NewClient(loopback(port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return bench.Target{}, err
	}
	defer func() { _ = connection.Close() }()
	client := rlsv3.NewRateLimitServiceClient(connection)
	request := &rlsv3.RateLimitRequest{Domain: "bench", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "hot", Value: "first"}},
	}}}
	err = p.await(ctx, func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		reply, err := client.ShouldRateLimit(ctx, request, grpc.WaitForReady(true))
		return err == nil && len(reply.GetStatuses()) == 1 && reply.GetStatuses()[0].GetCurrentLimit() != nil
	})
	return bench.Target{Address: address, Processes: processes}, err
}
