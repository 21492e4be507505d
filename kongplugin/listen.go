package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// socketListener is a listener on a unix socket whose file stays when it is closed.
//
// `kong reload` starts a new process before the one before it ends. The new one takes the path over; if the old one removed
// the file when it ends, it would remove the new one's.
type socketListener struct{ *net.UnixListener }

// listen takes over the path, whoever had it. A file there that is no socket is left alone.
func listen(ctx context.Context, path string, mode os.FileMode) (*socketListener, error) {
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s is there already and is no socket: remove it, or use another -kong-prefix", path)
	case err == nil:
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the socket of a process before this one: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the plugin's socket: %w", err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("the plugin's socket: %w (is its folder one that this user may write to?)", err)
	}
	unix := listener.(*net.UnixListener)
	unix.SetUnlinkOnClose(false)
	if mode != 0 {
		if err := os.Chmod(path, mode); err != nil {
			_ = unix.Close()
			return nil, fmt.Errorf("the plugin's socket: %w", err)
		}
	}
	return &socketListener{unix}, nil
}
