package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// floorService answers every request with OK.
type floorService struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (floorService) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses:    []*rlsv3.RateLimitResponse_DescriptorStatus{{Code: rlsv3.RateLimitResponse_OK}},
	}, nil
}

// FloorExpectation is what the floor answers to any workload.
func FloorExpectation() Expectation { return Expectation{Code: "OK", Statuses: 1} }

// ServeFloor is the floor: a grpc-go server with default settings and the generated types that answers OK and one status to
// everything. No server on that stack can cost less. It prints its address, host:port or unix:PATH, and a line break, and
// serves until ctx ends.
func ServeFloor(ctx context.Context, address Address, out io.Writer) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, address.network, address.address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(server, floorService{})
	defer context.AfterFunc(ctx, server.Stop)()
	served := Address{address.network, listener.Addr().String()}
	if _, err := fmt.Fprintln(out, served); err != nil {
		server.Stop()
		return err
	}
	return server.Serve(listener)
}

// Floor is a floor in a process of its own.
type Floor struct {
	Target Target

	command *exec.Cmd
	stdin   io.Closer
	dir     string // of its socket
}

const (
	floorStart = 10 * time.Second
	floorEnd   = 2 * time.Second
)

// StartFloor starts the floor as a process of its own, so that its processor time can be told from the generator's: command
// and the address to listen on as its last argument, on a free port or on a unix socket. That command must call ServeFloor and
// end when its standard input does; so it ends even if this process is killed.
func StartFloor(ctx context.Context, unixSocket bool, command ...string) (_ *Floor, err error) {
	f := &Floor{}
	address := Address{"tcp", "127.0.0.1:0"}
	if unixSocket {
		if f.dir, err = os.MkdirTemp("", "weir-bench"); err != nil {
			return nil, err
		}
		address = Address{"unix", filepath.Join(f.dir, "floor.sock")}
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	cmd := exec.Command(command[0], append(command[1:], address.String())...) //nolint:noctx // Close ends it
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the floor: %w", err)
	}
	f.command, f.stdin = cmd, stdin
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(stdout).ReadString('\n')
		line <- strings.TrimSpace(text)
	}()
	select {
	case text := <-line:
		served, err := ParseAddress(text)
		if err != nil {
			return nil, errors.New("the floor ended without a word on where it listens")
		}
		f.Target = Target{
			Name: "floor", Address: served, Expect: FloorExpectation(),
			Processes: []Process{{Name: "floor", PID: cmd.Process.Pid}},
		}
		return f, nil
	case <-time.After(floorStart):
		return nil, fmt.Errorf("the floor did not start in %v", floorStart)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close ends the floor.
func (f *Floor) Close() {
	if f.command != nil {
		_ = f.stdin.Close()
		kill := time.AfterFunc(floorEnd, func() { _ = f.command.Process.Kill() })
		defer kill.Stop()
		_ = f.command.Wait()
	}
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
}
