package fastgrpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/pkg/fastgrpc"
)

const (
	echoPath = "/test.Echo/Call"
	waitPath = "/test.Echo/Wait"
)

// patient makes a handler one that may wait.
func patient(handler fastgrpc.Handler) fastgrpc.Handler {
	return func(ctx context.Context, calls []fastgrpc.Call) {
		if fastgrpc.Wait(ctx) {
			handler(ctx, calls)
		}
	}
}

// echo answers what it is asked; a request of the byte 0xff alone is refused.
func echo(_ context.Context, calls []fastgrpc.Call) {
	for i := range calls {
		if string(calls[i].Request) == "\xff" {
			calls[i].Code, calls[i].Message = codes.InvalidArgument, "100% wrong: é\n"
			continue
		}
		calls[i].Reply = append(calls[i].Reply, calls[i].Request...)
	}
}

// start serves on a free port until the test ends and returns the address.
func start(t testing.TB, options fastgrpc.Options, methods ...fastgrpc.Method) (*fastgrpc.Server, string) {
	t.Helper()
	if methods == nil {
		methods = []fastgrpc.Method{{Path: echoPath, Handler: echo}, {Path: waitPath, Handler: patient(echo), Waits: true}}
	}
	server := fastgrpc.New(options, methods...)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; err != fastgrpc.ErrServerClosed { //nolint:errorlint // exactly this one
			t.Errorf("Serve returned %v", err)
		}
	})
	return server, listener.Addr().String()
}

func dial(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	connection, err := grpc.NewClient(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func TestCalls(t *testing.T) {
	_, address := start(t, fastgrpc.Options{})
	connection := dial(t, address)
	for _, path := range []string{echoPath, waitPath} {
		for _, size := range []int{0, 1, 100, 16384, 65536, 1 << 20 >> 1} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			in, out := wrapperspb.Bytes(make([]byte, size)), new(wrapperspb.BytesValue)
			if err := connection.Invoke(ctx, path, in, out); err != nil {
				t.Errorf("%s with %d bytes: %v", path, size, err)
			} else if len(out.GetValue()) != size {
				t.Errorf("%s: %d bytes came back as %d", path, size, len(out.GetValue()))
			}
			cancel()
		}
	}
}

func TestUnknownMethod(t *testing.T) {
	_, address := start(t, fastgrpc.Options{})
	err := dial(t, address).Invoke(t.Context(), "/test.Echo/Other", wrapperspb.Bytes(nil), new(wrapperspb.BytesValue))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
}

func TestStatusMessage(t *testing.T) {
	_, address := start(t, fastgrpc.Options{}, fastgrpc.Method{Path: echoPath, Handler: func(_ context.Context, calls []fastgrpc.Call) {
		for i := range calls {
			calls[i].Code, calls[i].Message = codes.InvalidArgument, "100% wrong: é\n"
		}
	}})
	err := dial(t, address).Invoke(t.Context(), echoPath, wrapperspb.Bytes(nil), new(wrapperspb.BytesValue))
	if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != "100% wrong: é\n" {
		t.Errorf("got %v", err)
	}
}

func TestMessageTooLarge(t *testing.T) {
	_, address := start(t, fastgrpc.Options{MaxMessageBytes: 1 << 20})
	connection := dial(t, address)
	for _, size := range []int{1<<20 + 1, 3 << 20} {
		err := connection.Invoke(t.Context(), echoPath, wrapperspb.Bytes(make([]byte, size)), new(wrapperspb.BytesValue))
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if err := connection.Invoke(t.Context(), echoPath, wrapperspb.Bytes([]byte("x")), new(wrapperspb.BytesValue)); err != nil {
		t.Error(err)
	}
}

func TestShutdownAnswersWhatWasAsked(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	server, address := start(t, fastgrpc.Options{}, fastgrpc.Method{Path: waitPath, Waits: true, Handler: func(ctx context.Context, calls []fastgrpc.Call) {
		if !fastgrpc.Wait(ctx) {
			return
		}
		close(entered)
		<-leave
		echo(ctx, calls)
	}})
	connection := dial(t, address)
	answered := make(chan error, 1)
	go func() {
		answered <- connection.Invoke(t.Context(), waitPath, wrapperspb.Bytes([]byte("x")), new(wrapperspb.BytesValue))
	}()
	<-entered
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(t.Context()) }()
	select {
	case err := <-down:
		t.Fatalf("Shutdown returned %v with a call under way", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}
