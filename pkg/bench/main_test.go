package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary plays the floor when it is called as the floor's command is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "bench-floor" {
		if err := floorMain(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func floorMain(text string) error {
	address, err := ParseAddress(text)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return ServeFloor(ctx, address, os.Stdout)
}
